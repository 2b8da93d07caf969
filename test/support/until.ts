// Waits for a condition instead of for a time.
import { setTimeout as sleep } from 'node:timers/promises'
import { vi } from 'vitest'
import { timeoutFactor } from './timeout-factor.ts'

const EVERY_MS = 10
const WITHIN_MS = 60_000

/** Resolves with the first value that is neither undefined nor false; fails with `what` after too long. */
export async function expectUntil<T>(
  what: string,
  look: () => T | undefined | false | Promise<T | undefined | false>,
  { withinMs = WITHIN_MS } = {},
): Promise<T> {
  const until = performance.now() + withinMs * timeoutFactor
  for (;;) {
    const seen = await look()
    if (seen !== undefined && seen !== false) return seen
    if (performance.now() > until) throw new Error(`Waited in vain for ${what}`)
    await sleep(EVERY_MS)
  }
}

/** Resolves with what the check returns once it passes; fails as the check does when it takes too long. */
export function eventually<T>(check: () => T | Promise<T>): Promise<T> {
  return vi.waitFor(check, { timeout: WITHIN_MS * timeoutFactor, interval: EVERY_MS })
}

/** Resolves once the condition holds, also under vitest's fake timers. */
export function holds(condition: () => boolean): Promise<unknown> {
  return vi.waitUntil(condition, { timeout: WITHIN_MS * timeoutFactor, interval: 1 })
}
