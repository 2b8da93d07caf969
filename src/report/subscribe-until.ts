// Subscribes a report to the keeper's events until it is stopped; reports have no timers of their own.
import { untilAborted } from '../lib/tasks.ts'
import type { Keeper, KeeperEvent } from '../token/keeper.ts'

/** The part of the keeper that a report uses. */
export type KeeperView = Pick<Keeper, 'state' | 'now' | 'onEvent'>

/** Calls the listener, which must not throw, at each event. Resolves when the signal is aborted. */
export async function subscribeUntil(
  keeper: KeeperView,
  signal: AbortSignal,
  listener: (event: KeeperEvent) => void,
): Promise<void> {
  const endListening = keeper.onEvent(listener)
  await untilAborted(signal)
  endListening()
}
