// How reports hang on the keeper: told at each of its events until they are stopped, with no timers of their own.
import type { Keeper, KeeperEvent } from '../token/keeper.ts'

/** What a report sees of the keeper. */
export type Watched = Pick<Keeper, 'state' | 'now' | 'onEvent'>

/** Calls the listener, which must not throw, at each event. Resolves when the signal is aborted. */
export function follow(
  keeper: Watched,
  signal: AbortSignal,
  listener: (event: KeeperEvent) => void,
): Promise<void> {
  const endListening = keeper.onEvent(listener)
  return new Promise((resolve) => {
    const stop = (): void => {
      endListening()
      resolve()
    }
    if (signal.aborted) stop()
    else signal.addEventListener('abort', stop, { once: true })
  })
}
