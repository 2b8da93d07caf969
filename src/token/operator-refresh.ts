// An operator's refresh: both plans are brought forward, and the answer is heard while somebody listens.
import type { Clock } from '../lib/clock.ts'
import { isTrying } from './candidate.ts'
import type { FetchOutcome } from './outcome.ts'
import { afterOperator, afterOperatorOfBoth } from './transitions.ts'
import type { Variable } from './variable.ts'

/** What an operator's request came to; `candidate`: what the pair that was tried first was answered. */
export interface Refreshed {
  readonly outcome: FetchOutcome
  readonly candidate: FetchOutcome | null
}

export function createOperatorRefresh(
  { get, change, onEvent, waitUntil }: Pick<Variable, 'get' | 'change' | 'onEvent' | 'waitUntil'>,
  clock: Clock,
) {
  /**
   * First the candidate is asked, if there is one, and where it gives no token the running pair. Both attempts
   * are made whatever the signal does. Undefined: it was aborted before the answer came.
   */
  return async (signal: AbortSignal): Promise<Refreshed | undefined> => {
    const asked = get().candidate?.credentialsId
    const isAskedStill = (): boolean => {
      const { candidate } = get()
      if (candidate === null || candidate.credentialsId !== asked) return false
      return isTrying(get()) || candidate.next?.cause === 'operator'
    }
    let [answer, tried]: [FetchOutcome | null, FetchOutcome | null] = [null, null]
    const endListening = onEvent((event) => {
      if (event.type === 'tried') tried = event.outcome
      if (event.type !== 'attempted') return
      // An attempt that was put off, or of another host, does not answer an operator who has come meanwhile.
      const isAnswer = event.outcome.kind !== 'postponed' && event.cause !== 'fleet'
      if (isAnswer || event.cause === 'operator') answer = event.outcome
      else if (answer === null) change(afterOperator(get(), clock.now()))
    })
    change(afterOperatorOfBoth(get(), clock.now()))
    await waitUntil(() => answer !== null && !isAskedStill(), { waitMs: Infinity, signal })
    endListening()
    return answer === null ? undefined : { outcome: answer, candidate: tried }
  }
}
