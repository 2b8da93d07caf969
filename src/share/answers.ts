// The answers that a host knows, and the two texts of the store. The order of all answers is that of (`at`, id):
// a look at the store brings its record and the latest answer of this host to one.
import { randomUUID } from 'node:crypto'
import { hostname } from 'node:os'
import { fingerprintOf } from '../protocol.ts'
import type { FetchOutcome } from '../token/outcome.ts'
import { lifeOf, type Token } from '../token/token.ts'
import type { Account, HostOptions } from './host.ts'
import type { Contents, Name } from './seal.ts'
import { StoreError } from './store.ts'

export type Held = Pick<Token, 'accessToken' | 'expirySource' | 'expiresAtMs' | 'pair' | 'receivedAtMs'>
/** An answer, with its times on this host's boot clock. */
type Answer = Contents['record']
/** Both texts, and what the lease says, on the boot clock; null: it is of no use. */
export interface Look {
  readonly recordText: string
  readonly leaseText: string
  readonly lease: Contents['lease'] | null
}

export const HOSTNAME = hostname()
/** For so long a refusal holds for hosts that come. */
const REFUSAL_MS = 3_600_000
/** A text that is further ahead of the store's clock is of no use. */
const AHEAD_MS = 5_000
/** So many answers that it has left a host remembers. */
const MAX_LEFT = 100

export function createAnswers({ seal, store, settings, clock, pairId, held, telemetry }: HostOptions) {
  const nowMs = (): number => clock.now().bootMs
  let latest = restoredAnswer(held(), pairId)
  /** The answer that the keeper has. */
  let deliveredId = latest?.id
  /** Ids of answers that this host has left for later ones: it takes none of them again, whatever a clock says. */
  const leftIds = new Set<string>()
  /** The store's clock minus the boot clock is between these: each look narrows it. The lower one counts. */
  let [low, high] = [-Infinity, Infinity]

  /** The content of a text, on the boot clock; null: it is of no use. */
  function open<N extends Name>(name: N, text: string): Contents[N] | null {
    const sealed = seal.open(name, text)
    const content = sealed && moved(sealed, -low)
    return content && content.at <= nowMs() + AHEAD_MS && content.until > nowMs() ? content : null
  }

  /** Puts the content in the place of the former text. Returns its text; null: another one is there by now. */
  async function put<N extends Name>(name: N, former: string, content: Contents[N]): Promise<string | null> {
    const text = seal.seal(name, moved(content, low))
    const isPut = await (await store).swap(seal.keys[name], former, text, content.until - nowMs())
    return isPut ? text : null
  }

  /** False: another record is there by now. */
  async function putLatest(former: string): Promise<boolean> {
    if (latest === null || latest.until <= nowMs()) return true
    return (await put('record', former, latest)) !== null
  }

  function replace(next: Answer): void {
    if (latest !== null) leftIds.add(latest.id)
    for (const id of leftIds) if (leftIds.size > MAX_LEFT) leftIds.delete(id)
    latest = next
  }

  /** Takes the record if it is later. Reports whether the record may stay as it is. */
  function meet(record: Answer): boolean {
    if (record.id === latest?.id) return true
    // The token from before this process may be that of the record.
    const isRestored = record.kind === 'ok' && latest?.id === fingerprintOf(record.accessToken)
    const isLater = latest === null || (record.at - latest.at || Number(record.id > latest.id)) > 0
    if (isRestored || (isLater && !leftIds.delete(record.id))) {
      replace(record)
      if (isRestored) deliveredId = record.id
      return true
    }
    // This host left it already: a clock has jumped. Once for each, or two hosts that are both sure would go on for ever.
    if (isLater) latest = { ...latest!, at: record.at + 1 }
    return false
  }

  /** Reads both texts, and brings the record and the latest answer to one. Rejects with a StoreError. */
  async function look(tries = 3): Promise<Look> {
    const opened = await store
    const beforeMs = nowMs()
    const { nowMs: storeMs, record: recordText, lease: leaseText } = await opened.read(seal.keys)
    const afterMs = nowMs()
    // This process was stopped meanwhile: no timer has run.
    if (afterMs - beforeMs > settings.timeoutMs) throw new StoreError('The answer came late')
    // The boot clock is in whole ms.
    const bounds = [storeMs - afterMs - 1, storeMs - beforeMs + 1] as const
    low = Math.max(low, bounds[0])
    high = Math.min(high, bounds[1])
    // The store's clock has jumped, and all times on it move along.
    if (low > high) [low, high] = bounds
    const record = open('record', recordText)
    const isSettled = (record !== null && meet(record)) || (await putLatest(recordText))
    // Another host may have been faster.
    if (!isSettled && tries > 1) return look(tries - 1)
    telemetry.connected()
    return { recordText, leaseText, lease: open('lease', leaseText) }
  }

  /** The latest answer, which another host got, as the keeper takes it. */
  function outcome(): FetchOutcome {
    const { id: _, by: askedBy, at, until, ...answer } = latest!
    const life = answer.kind === 'ok' ? { lifeMs: until - at, ageMs: nowMs() - at } : {}
    return { ...answer, ...life, askedBy }
  }

  return {
    look,
    put,
    putLatest,
    outcome,
    /** Removes this text, unless another one is there by now. */
    remove: async (name: Name, text: string) => (await store).swap(seal.keys[name], text, '', 1),
    latest: (): Answer | null => latest,
    /** The keeper lacks the latest answer, which was asked for from this moment on. */
    isNew: (sinceMs = -Infinity): boolean =>
      latest !== null && latest.id !== deliveredId && latest.at >= sinceMs,
    /** The keeper has the latest answer from now on. */
    deliver(): FetchOutcome {
      deliveredId = latest!.id
      return outcome()
    },
    /** This host got an answer, and its keeper has it; `before` was the latest when the request began. */
    learn(answer: Answer, before: Answer | null): void {
      // Meanwhile a look has brought the answer to a later request.
      if (latest !== null && latest !== before && latest.at > answer.at) return
      replace({ ...answer, at: Math.max(answer.at, (before?.at ?? -Infinity) + 1) })
      deliveredId = answer.id
    },
  }
}

/** The same content on another clock, which is ahead by this. */
const moved = <C extends Contents[Name]>(content: C, aheadMs: number): C => ({
  ...content,
  at: content.at + aheadMs,
  until: content.until + aheadMs,
})

/** The token that the keeper has for this pair: after a start the fleet may not know of it. */
function restoredAnswer(held: Held | null, pairId: string): Answer | null {
  if (held?.pair !== pairId) return null
  const { accessToken, expirySource, receivedAtMs: at, expiresAtMs: until } = held
  const id = fingerprintOf(accessToken)
  return { kind: 'ok', accessToken, expirySource, id, by: HOSTNAME, at, until }
}

/** The answer in an outcome. Null: the outcome holds for this host alone, or is no answer. */
export function answerOf(
  outcome: FetchOutcome,
  { hasOwnProof, maxAgeMs }: Pick<Account, 'hasOwnProof' | 'maxAgeMs'>,
  { sentAtMs: at, wallMs }: { sentAtMs: number; wallMs: number },
): Answer | null {
  const stamped = { id: randomUUID(), by: HOSTNAME, at }
  if (outcome.kind === 'permanent' && !hasOwnProof) {
    const { kind, reason, detail, status } = outcome
    return { kind, reason, detail, status, ...stamped, until: at + REFUSAL_MS }
  }
  if (outcome.kind !== 'ok') return null
  const { kind, accessToken } = outcome
  const { lifeMs, expirySource } = lifeOf(outcome, wallMs, maxAgeMs)
  return lifeMs > 0 ? { kind, accessToken, expirySource, ...stamped, until: at + lifeMs } : null
}
