// The host's name as alerts and `status` show it.
import { hostname } from 'node:os'
import { untilAborted } from '../lib/tasks.ts'
import { sleep } from '../lib/clock.ts'

export interface HostName {
  current(): string
  /** Adds the address where the name says nothing, once clients had time to be served. */
  run(signal: AbortSignal): Promise<void>
}

/** Start-up work that no client waits for begins after this delay. */
const DELAY_MS = 1_000

export function createHostName(): HostName {
  let name = hostname()
  return {
    current: () => name,
    async run(signal) {
      await sleep(DELAY_MS, signal)
      if (!signal.aborted) {
        const { hostName } = await import('./host.ts')
        name = await hostName()
      }
      await untilAborted(signal)
    },
  }
}
