// The client's memory of tokens: the last good one, and those that the service refused.
import type { RejectVerdict, TokenResult } from '../protocol.ts'
import type { ClientToken, GetOptions } from './token-source.ts'
import { monotonicMs } from '../lib/monotonic.ts'

/** A token that the service refused: it is not given from memory, and `fetch` does not send it. */
export interface Refusal {
  /** The daemon's verdict on the report; undefined while it has none. */
  readonly verdict: RejectVerdict | undefined
  /** When the daemon asks the service about it, or may be asked again, on the clock of `monotonicMs`. */
  readonly retryAtMs: number
}

export interface KnownTokens {
  /** Remembers a token of the daemon as the last one. */
  keep(token: TokenResult): void
  /** The last token, where it is as good as asked for and was not refused. */
  cached(request: GetOptions): ClientToken | undefined
  refuse(fingerprint: string, refusal: Refusal): void
  refusalOf(fingerprint: string): Refusal | undefined
  /** The service gave this token again. */
  forgive(fingerprint: string): void
}

/** Calls that began with an earlier token may still be refused when there are two later ones. */
const MAX_REFUSALS = 16

export function createKnownTokens(): KnownTokens {
  let last: { token: TokenResult; expiresAtMs: number } | undefined
  const refusals = new Map<string, Refusal>()

  /** Life left by both clocks: one of them stops during suspend, and the other may be set. */
  function lifeLeftMs({ token, expiresAtMs }: NonNullable<typeof last>): number {
    return Math.min(Date.parse(token.expiresAt) - Date.now(), expiresAtMs - monotonicMs())
  }

  return {
    keep(token) {
      const expiresAtMs = monotonicMs() + Date.parse(token.expiresAt) - Date.now()
      last = { token, expiresAtMs }
    },
    cached({ minValidSeconds = 0, notFingerprint }) {
      if (last === undefined) return undefined
      const { fingerprint } = last.token
      if (fingerprint === notFingerprint || refusals.has(fingerprint)) return undefined
      const leftMs = lifeLeftMs(last)
      if (leftMs <= 0 || leftMs < minValidSeconds * 1_000) return undefined
      return { ...last.token, cached: true }
    },
    refuse(fingerprint, refusal) {
      refusals.set(fingerprint, refusal)
      const [oldest] = refusals.keys()
      if (refusals.size > MAX_REFUSALS && oldest !== undefined) refusals.delete(oldest)
    },
    refusalOf: (fingerprint) => refusals.get(fingerprint),
    forgive: (fingerprint) => void refusals.delete(fingerprint),
  }
}
