// The last answer of the service that a host knows of: its place in the order, its text for a restart, and
// the keeper's outcome. Pure.
import * as v from 'valibot'
import type { Instant } from '../lib/clock.ts'
import { parseJson } from '../lib/input.ts'
import type { FetchOutcome, Grant, PermanentFailure } from '../token/outcome.ts'
import { refusalOf, type TokenState } from '../token/state.ts'
import { knownLife } from '../token/token.ts'
import type { Key, Opened, Sealed } from './seal.ts'
import type { Pair } from './store.ts'

/** An answer that holds for all hosts. The life of a token is counted from when the request was sent. */
export type Answer =
  | (Required<Pick<Grant, 'kind' | 'accessToken' | 'lifeMs' | 'expirySource'>> & { readonly kind: 'ok' })
  | Pick<PermanentFailure, 'kind' | 'reason' | 'detail' | 'status' | 'says'>

export interface Known extends Pair {
  /** Null: none was ever known. */
  readonly answer: Answer | null
  /** The name of the host that asked. */
  readonly by: string
  /** When the request was sent, on this host's boot clock. */
  readonly sentAtMs: number
  /** The store has had it. Until then `fence` is only the least that it may get. */
  readonly isWritten: boolean
}

/** A request that went out; `fence` is the least that its answer may get. */
export type Sent = Pick<Known, 'fence' | 'id' | 'by' | 'sentAtMs'>

const NOTHING: Known = {
  fence: 0,
  id: '0'.repeat(16),
  answer: null,
  by: '',
  sentAtMs: -Infinity,
  isWritten: true,
}

/** A refusal holds for a host that comes within this time; a later one asks. */
const REFUSAL_MS = 3_600_000
/** A time further ahead of the store's clock is none: the text is of no use. */
export const AHEAD_MS = 5_000

/** Compares as numbers; the digits of two ids are as many. */
export function isLarger(one: Pair, other: Pair): boolean {
  return one.fence === other.fence ? one.id > other.id : one.fence > other.fence
}

/** Reports whether the text counts at this moment of the store's clock. */
export function isOfUse({ at, end }: Pick<Sealed<Key>, 'at' | 'end'>, storeNowMs: number): boolean {
  return at <= storeNowMs + AHEAD_MS && end > storeNowMs
}

export function isSameAnswer(one: Known, other: Known): boolean {
  const [token, otherToken] = [one, other].map(({ answer }) => answer?.kind === 'ok' && answer.accessToken)
  return one.id === other.id || (typeof token === 'string' && token === otherToken)
}

/** The answer as a record, for a request that was sent at `at`. */
export function recordOf(answer: Answer, { by, at }: { by: string; at: number }): Sealed<'record'> {
  if (answer.kind === 'permanent') return { ...answer, by, at, end: at + REFUSAL_MS }
  const { lifeMs, ...token } = answer
  return { ...token, by, at, end: at + lifeMs }
}

export function knownOf(record: Opened<'record'>, aheadMs: number): Known {
  const { fence, id, by, at, end, ...content } = record
  const answer = content.kind === 'ok' ? { ...content, lifeMs: end - at } : content
  return { fence, id, by, sentAtMs: at - aheadMs, answer, isWritten: true }
}

/** Null: a token without life. */
export function answerOf(
  outcome: Grant | PermanentFailure,
  { wallMs, maxAgeMs }: { wallMs: number; maxAgeMs: number },
): Answer | null {
  if (outcome.kind === 'permanent') {
    const { kind, reason, detail, status, says } = outcome
    return { kind, reason, detail, status, says }
  }
  const { kind, accessToken } = outcome
  const life = knownLife(outcome, wallMs) ?? { lifeMs: maxAgeMs, expirySource: 'assumed' as const }
  return life.lifeMs > 0 ? { kind, accessToken, ...life } : null
}

/** The outcome for the keeper, with the text that it saves; null: there is no answer. */
export function outcomeOf(known: Known, { host, now }: { host: string; now: Instant }): FetchOutcome | null {
  const { answer, by, sentAtMs } = known
  if (answer === null) return null
  const shared = { ...(by !== host && { askedBy: by }), known: formatKnown(known, now) }
  return answer.kind === 'permanent'
    ? { ...answer, ...shared }
    : { ...answer, ageMs: now.bootMs - sentAtMs, ...shared }
}

// ---- the text that is saved with the answer --------------------------------------------------------------

const savedShape = v.object({
  fence: v.pipe(v.number(), v.safeInteger()),
  id: v.pipe(v.string(), v.regex(/^[\da-f]{16}$/)),
  by: v.string(),
  sentAt: v.object({ bootMs: v.number(), wallMs: v.number() }),
  isWritten: v.boolean(),
})

function formatKnown({ fence, id, by, sentAtMs, isWritten }: Known, now: Instant): string {
  const sentAt = { bootMs: sentAtMs, wallMs: now.wallMs - (now.bootMs - sentAtMs) }
  return JSON.stringify({ fence, id, by, sentAt, isWritten })
}

function parseKnown(text: string | null | undefined) {
  const { success, output } = v.safeParse(savedShape, parseJson(text ?? ''))
  return success ? output : null
}

/**
 * What this host knew before it was restarted: the answer that the keeper holds, with the text that was saved
 * beside it. A token without such a text was obtained alone.
 */
export function resumed(
  state: TokenState,
  { credentialsId, host, id, now }: { credentialsId: string; host: string; id: string; now: Instant },
): Known {
  const { token } = state
  const refusal = state.credentialsId === credentialsId ? refusalOf(state) : null
  const refused = parseKnown(refusal?.known)
  if (refusal !== null && refused !== null) {
    const { sentAt, ...rest } = refused
    const { reason, detail, status, says } = refusal
    // A refusal may be of another boot: its age is that of the wall clock.
    const sentAtMs = now.bootMs - Math.max(0, now.wallMs - sentAt.wallMs)
    const answer = {
      kind: 'permanent',
      reason,
      detail,
      status: status ?? 0,
      says: says ?? undefined,
    } as const
    return { ...rest, answer, sentAtMs }
  }
  if (token?.credentialsId !== credentialsId) return NOTHING
  const { accessToken, lifeMs, expirySource, received } = token
  const answer = { kind: 'ok', accessToken, lifeMs, expirySource } as const
  const saved = parseKnown(token.known)
  if (saved === null) return { fence: 1, id, by: host, answer, sentAtMs: received.bootMs, isWritten: false }
  const { sentAt, ...rest } = saved
  return { ...rest, answer, sentAtMs: sentAt.bootMs }
}
