// Properties are tried for a second, and the first counterexample kills: to make it smaller only takes time.
import * as fc from 'fast-check'

fc.configureGlobal({ endOnFailure: true, interruptAfterTimeLimit: 1_000 })
