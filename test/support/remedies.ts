// Remedies as the unit of the default account shows them.
import { createRemedies } from '../../src/host/remedy.ts'

export const { remedyOf } = createRemedies({ account: undefined, isUnit: true })
