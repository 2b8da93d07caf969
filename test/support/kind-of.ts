// The kind of a state, in one word.
import type { TokenState } from '../../src/token/state.ts'

export function kindOf({ refusal, token }: TokenState): 'refused' | 'held' | 'waiting' {
  if (refusal !== null) return 'refused'
  return token === null ? 'waiting' : 'held'
}
