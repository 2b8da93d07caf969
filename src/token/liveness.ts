// Reports whether the keeper's loop is alive: it ticks at least every 15 s, also during a request to the service.
import type { Keeper } from './keeper.ts'

/** Three ticks missed are no accident. */
const ALIVE_MS = 45_000

/** `monotonicMs`: a clock that stops during suspend, because a suspended loop cannot tick. */
export function createLiveness(keeper: Pick<Keeper, 'onEvent'>, monotonicMs: () => number): () => boolean {
  let tickedAtMs = monotonicMs()
  keeper.onEvent(({ type }) => {
    if (type === 'tick') tickedAtMs = monotonicMs()
  })
  return () => monotonicMs() - tickedAtMs < ALIVE_MS
}
