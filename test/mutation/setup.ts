// A mutant is killed by the first counterexample: to make it smaller only takes time.
import * as fc from 'fast-check'

fc.configureGlobal({ endOnFailure: true })
