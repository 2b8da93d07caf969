// The kind of a state, in one word.
import { refusalOf, type TokenState } from '../../src/token/selectors.ts'

export function kindOf(state: TokenState): 'refused' | 'held' | 'waiting' {
  if (refusalOf(state) !== null) return 'refused'
  return state.token === null ? 'waiting' : 'held'
}
