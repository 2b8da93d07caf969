// Notices that the service may keep only one token of an account alive: hosts that ask by themselves then end each other's.
import type { Log } from '../lib/log.ts'

export interface Contention {
  /** Another host has asked by itself; its record has come. */
  askedAlone(by: string): void
  /** A client reported that the service refused the token, so many ms after this host had it. Logged once an hour at most. */
  rejected(ageMs: number): void
}

const YOUNG_MS = 60_000
const LOG_EVERY_MS = 3_600_000
const REMEDY =
  'If the service keeps only one token of an account alive, set share.whenAlone to "wait" on every host: then none asks while the shared store is away'

/** `isAlone`: the shared store cannot be used now, so that other hosts ask by themselves, too. */
export function createContention({
  log,
  bootMs,
  isAlone,
}: {
  log: Log
  bootMs: () => number
  isAlone: () => boolean
}): Contention {
  let lastAlone: { readonly by: string; readonly atMs: number } | null = null
  let loggedAtMs = -Infinity
  return {
    askedAlone(by) {
      lastAlone = { by, atMs: bootMs() }
    },
    rejected(ageMs) {
      const nowMs = bootMs()
      const recent = lastAlone !== null && nowMs - lastAlone.atMs < YOUNG_MS ? lastAlone : null
      if (ageMs >= YOUNG_MS || (recent === null && !isAlone()) || nowMs - loggedAtMs < LOG_EVERY_MS) return
      loggedAtMs = nowMs
      log('warning', 'The service refused a new token while hosts ask by themselves', {
        event: 'share-contention',
        ageMs: Math.round(ageMs),
        ...(recent !== null && { by: recent.by }),
        remedy: REMEDY,
      })
    },
  }
}
