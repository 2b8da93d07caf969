// When a host asks the service by itself while the store cannot be reached: spread, so that a fleet never stampedes.

export interface Loneliness {
  /** Until when the token that is held can be used, on the boot clock; null: there is none. */
  readonly usableUntilMs: number | null
  /** Hosts of the fleet, as last heard of; null: never. */
  readonly hosts: number | null
}

/** Of the life that is left: the rest is for the request itself and its repetition. */
const SHARE_OF_LIFE = 0.8
const PER_HOST_MS = 100
const SPREAD = { atLeastMs: 1_000, atMostMs: 300_000, unknownMs: 10_000 }

/** Within how many ms from now this host asks. */
export function spreadMs({ usableUntilMs, hosts }: Loneliness, nowMs: number): number {
  const leftMs = (usableUntilMs ?? nowMs) - nowMs
  if (leftMs > 0) return SHARE_OF_LIFE * leftMs
  if (hosts === null) return SPREAD.unknownMs
  return Math.min(SPREAD.atMostMs, Math.max(SPREAD.atLeastMs, hosts * PER_HOST_MS))
}

/** When this host asks, on the boot clock. `drawn` is from [0, 1). */
export function aloneAtMs(loneliness: Loneliness, nowMs: number, drawn: number): number {
  return nowMs + drawn * spreadMs(loneliness, nowMs)
}
