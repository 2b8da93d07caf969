// The last answer of the service that a host knows of: its place in the order, its text for a restart, and
// the keeper's outcome. Pure.
import * as v from 'valibot'
import type { Instant } from '../lib/clock.ts'
import { parseJson } from '../lib/input.ts'
import type { FetchOutcome, Grant, PermanentFailure, ServiceOutcome } from '../token/outcome.ts'
import { refusalOf, type TokenState } from '../token/state.ts'
import { knownLife } from '../token/token.ts'
import type { Opened, Sealed } from './seal.ts'
import type { Pair } from './store.ts'

/** An answer that holds for all hosts. The life of a token is counted from when the request was sent. */
export type Answer =
  | (Required<Pick<Grant, 'kind' | 'accessToken' | 'lifeMs' | 'expirySource'>> & { readonly kind: 'ok' })
  | Pick<PermanentFailure, 'kind' | 'reason' | 'detail' | 'status'>

export interface Known extends Pair {
  /** Null: none was ever known. */
  readonly answer: Answer | null
  /** The name of the host that asked. */
  readonly by: string
  /** When the request was sent, on this host's boot clock. */
  readonly sentAtMs: number
  /** The same on the store's clock, as the record says it; null: not written. */
  readonly at: number | null
  /** The store has had it. Until then `fence` is only the least that it may get. */
  readonly isWritten: boolean
}

export const NOTHING: Known = {
  fence: 0,
  id: '0'.repeat(16),
  answer: null,
  by: '',
  sentAtMs: -Infinity,
  at: null,
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
export function isOfUse(
  { at, end }: { readonly at: number; readonly end: number },
  storeNowMs: number,
): boolean {
  return at <= storeNowMs + AHEAD_MS && end > storeNowMs
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
  return { fence, id, by, at, sentAtMs: at - aheadMs, answer, isWritten: true }
}

/** Null: a failure, which is not for all, or a token without life. */
export function answerOf(
  outcome: ServiceOutcome,
  { wallMs, maxAgeMs }: { wallMs: number; maxAgeMs: number },
): Answer | null {
  if (outcome.kind === 'transient') return null
  if (outcome.kind === 'permanent') {
    const { kind, reason, detail, status } = outcome
    return { kind, reason, detail, status }
  }
  const { kind, accessToken } = outcome
  const life = knownLife(outcome, wallMs) ?? { lifeMs: maxAgeMs, expirySource: 'assumed' as const }
  return life.lifeMs > 0 ? { kind, accessToken, ...life } : null
}

/** What the keeper is told, with the text that it saves. */
export function outcomeOf(
  { answer, ...known }: Known & { readonly answer: Answer },
  { host, now, ...more }: { host: string; now: Instant; account: string; hosts: number | null },
): FetchOutcome {
  const askedBy = known.by === host ? {} : { askedBy: known.by }
  const shared = { ...askedBy, known: formatKnown(known, { ...more, now }) }
  if (answer.kind === 'permanent') return { ...answer, ...shared }
  return { ...answer, ageMs: now.bootMs - known.sentAtMs, ...shared }
}

// ---- the text that is saved with the answer
// ----------------------------------------------------------------------

const savedShape = v.object({
  account: v.string(),
  fence: v.pipe(v.number(), v.safeInteger()),
  id: v.pipe(v.string(), v.regex(/^[\da-f]{16}$/)),
  by: v.string(),
  sentAt: v.object({ bootMs: v.number(), wallMs: v.number() }),
  at: v.nullable(v.number()),
  isWritten: v.boolean(),
  hosts: v.nullable(v.number()),
})

export function formatKnown(
  { fence, id, by, at, sentAtMs, isWritten }: Omit<Known, 'answer'>,
  { account, hosts, now }: { account: string; hosts: number | null; now: Instant },
): string {
  const sentAt = { bootMs: sentAtMs, wallMs: now.wallMs - (now.bootMs - sentAtMs) }
  return JSON.stringify({ account, fence, id, by, sentAt, at, isWritten, hosts })
}

export interface Resumed {
  readonly known: Known
  readonly hosts: number | null
}

/**
 * What this host knew before it was restarted, out of the answer that the keeper holds and the text that was
 * saved with it. A token without such a text was obtained alone.
 */
export function resumed(
  state: TokenState,
  own: { account: string; credentialsId: string; host: string; id: string; now: Instant },
): Resumed {
  const { account, credentialsId, now } = own
  const { token, credentialsId: running } = state
  const refusal = running === credentialsId ? refusalOf(state) : null
  const refused = saved(refusal?.known, account)
  if (refusal !== null && refused !== null) {
    const { sentAt, hosts, ...rest } = refused
    const { reason, detail, status } = refusal
    const answer = { kind: 'permanent', reason, detail, status: status ?? 0 } as const
    // A refusal may be of another boot: its age is that of the wall clock.
    const sentAtMs = now.bootMs - Math.max(0, now.wallMs - sentAt.wallMs)
    return { known: { ...rest, answer, sentAtMs }, hosts }
  }
  if (token?.credentialsId !== credentialsId) return { known: NOTHING, hosts: null }
  const { accessToken, lifeMs, expirySource, received } = token
  const answer = { kind: 'ok', accessToken, lifeMs, expirySource } as const
  const text = saved(token.known, account)
  if (text !== null) {
    const { sentAt, hosts, ...rest } = text
    return { known: { ...rest, answer, sentAtMs: sentAt.bootMs }, hosts }
  }
  const { host: by, id } = own
  const known = { fence: 1, id, by, answer, at: null, sentAtMs: received.bootMs, isWritten: false }
  return { known, hosts: null }
}

function saved(text: string | null | undefined, account: string) {
  const { success, output } = v.safeParse(savedShape, parseJson(text ?? ''))
  return success && output.account === account ? output : null
}

// ---- the time at which a host asks by itself
// ---------------------------------------------------------------------

export interface Plan {
  readonly atMs: number
  readonly isUrgent: boolean
}

/** The rest of the life is for the request and its repetition. */
const SHARE_OF_LIFE = 0.8
const PER_HOST_MS = 100
const SPREAD = { atLeastMs: 1_000, atMostMs: 300_000, unknownMs: 10_000 }
/** A minute, less the time after which the store is tried again. */
const URGENT_MS = 45_000

/**
 * The time from now over which hosts without the store spread their requests. `leftMs`: until this host needs
 * another token; 0 or less: it has none. `isUrgent`: its token was reported as refused.
 */
export function spreadMs({
  leftMs,
  hosts,
  isUrgent,
}: {
  leftMs: number
  hosts: number | null
  isUrgent: boolean
}): number {
  if (leftMs > 0) return Math.min(isUrgent ? URGENT_MS : Infinity, SHARE_OF_LIFE * leftMs)
  if (hosts === null) return SPREAD.unknownMs
  return Math.min(SPREAD.atMostMs, Math.max(SPREAD.atLeastMs, hosts * PER_HOST_MS))
}
