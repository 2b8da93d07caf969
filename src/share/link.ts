// The link of a host to the store of one account: the last answer that the host knows, the store's clock, and
// polls, which bring both sides to the same answer.
import type { Clock } from '../lib/clock.ts'
import { invariant } from '../lib/invariant.ts'
import type { Log } from '../lib/log.ts'
import { AHEAD_MS, isLarger, isOfUse, isSameAnswer, knownOf, recordOf, type Known } from './known.ts'
import type { Opened, Seal, Sealed } from './seal.ts'
import { StoreError, type Expiring, type Held, type Store } from './store.ts'
import type { Telemetry } from './telemetry.ts'
import { UNCONFIRMED_MS, type Wait } from './wait.ts'

export type Link = ReturnType<typeof createLink>

export function createLink(options: {
  readonly store: Store
  readonly seal: Seal
  readonly clock: Pick<Clock, 'now'>
  readonly log: Log
  readonly timeoutMs: number
  readonly telemetry: Telemetry
  readonly resumed: Known
}) {
  const { store, seal, clock, log, timeoutMs, telemetry } = options
  let known = options.resumed
  /** The keeper does not have the answer that is known. */
  let isNew = false
  /** The last wait that this host wrote; null: there is none, or it is over. */
  let ownWait: Wait | null = null
  /** The last count; null: it was never read. */
  let hosts: number | null = null
  /** The lead of the store's clock over the boot clock, once it was read. */
  let aheadMs = 0
  /** A text that was found to be of no use; the next step removes it. */
  let drop: string | null = null

  const bootMs = (): number => clock.now().bootMs
  /** The store's clock at this moment of the boot clock. */
  const storeMs = (atMs = bootMs()): number => atMs + aheadMs

  /** Reads the clock of the store with each step. Rejects with a StoreError if the store cannot be used. */
  async function step(command: (drop: string | null) => Promise<Held>, dropping = drop): Promise<Held> {
    const sentMs = bootMs()
    const held = await command(dropping)
    const receivedMs = bootMs()
    if (drop === dropping) drop = null
    if (receivedMs - sentMs > timeoutMs)
      throw new StoreError('lost', 'The answer of the server came too late')
    aheadMs = held.nowMs - (sentMs + receivedMs) / 2
    if (held.hosts > 0) ({ hosts } = held)
    return held
  }

  /** Adopts the record if it is larger. False: the known answer, if there is one, belongs in its place. */
  function adoptRecord(text: string | null): boolean {
    if (text === null) return false
    const opened = seal.open('record', text)
    if (opened === null) telemetry.unreadable()
    else if (opened.id === known.id) {
      if (confirmOwn(opened)) return true
    } else if (isOfUse(opened, storeMs())) return adoptLarger(opened)
    drop = text
    return false
  }

  /** The record is the known answer. False: its fence or its age is another one than this host has. */
  function confirmOwn({ fence, at }: Opened<'record'>): boolean {
    // An answer has a second fence if its first write seemed to have failed and had not.
    const largest = known.isWritten ? Math.max(known.fence, fence) : fence
    known = { ...known, fence: largest, isWritten: true }
    // Its age is another one if the store's clock was set.
    return fence === largest && Math.abs(at - storeMs(known.sentAtMs)) <= AHEAD_MS
  }

  function adoptLarger(opened: Opened<'record'>): boolean {
    if (!known.isWritten || !isLarger(opened, known)) return false
    known = knownOf(opened, aheadMs)
    isNew = true
    return true
  }

  /** Brings both sides to the same answer. Rejects with a StoreError. */
  async function poll(): Promise<void> {
    const { record, lease } = await step((dropping) => store.poll({ drop: dropping }))
    if (!adoptRecord(record)) await write()
    await repairWait(lease)
    telemetry.connected()
  }

  /** Writes this host's wait again while it holds, if a flush removed it or the store's clock was set. */
  async function repairWait(lease: string | null): Promise<void> {
    if (ownWait !== null && (ownWait.endsAtMs <= bootMs() || !isLarger(ownWait, known))) ownWait = null
    if (ownWait === null || (lease !== null && !isMisdated(lease, ownWait))) return
    drop = lease ?? drop
    const { id, by } = ownWait
    const kept = sealedWait(ownWait)
    await step((dropping) => store.write({ drop: dropping, id, record: null, kept }))
    log('debug', 'The shared store has the wait that the service asked for again', {
      event: 'share-repaired',
      by,
    })
  }

  function isMisdated(lease: string, { id, sentAtMs }: Wait): boolean {
    const opened = lease.includes(id) ? seal.open('lease', lease) : null
    return opened !== null && Math.abs(opened.at - storeMs(sentAtMs)) > AHEAD_MS
  }

  function sealedWait({ fence, id, sentAtMs, endsAtMs, ...said }: Wait): Expiring {
    const [at, end] = [Math.floor(storeMs(sentAtMs)), Math.floor(storeMs(endsAtMs))]
    const content = { kind: 'postponed', at, end, ...said } as const
    // What is unconfirmed lies there for longer, for the host that may confirm it.
    const keepMs = Math.max(endsAtMs - bootMs(), said.unconfirmed === null ? 0 : UNCONFIRMED_MS)
    return { text: seal.seal('lease', { fence, id }, content), keepMs: Math.ceil(keepMs) }
  }

  /** The answer that is known; null: there is none, or its end is over. */
  function knownRecord(): Sealed<'record'> | null {
    const { answer, by, sentAtMs } = known
    const content = answer && recordOf(answer, { by, at: Math.floor(storeMs(sentAtMs)) })
    return content !== null && isOfUse(content, storeMs()) ? content : null
  }

  /** Writes the known answer, and adopts a larger one. Rejects with a StoreError. */
  async function write(): Promise<void> {
    const content = knownRecord()
    if (content === null) {
      // Nothing is left to be written.
      known = { ...known, isWritten: true }
      return
    }
    const { id, by, fence, isWritten } = known
    const own = { ...known, fence: isWritten ? fence : Math.max(content.at, fence), isWritten: true }
    const text = seal.seal('record', own, content)
    const expiring = { text, keepMs: Math.ceil(content.end - storeMs()) }
    const held = await step((dropping) => store.write({ drop: dropping, id, record: expiring, kept: null }))
    if (known.id !== id) return
    invariant(own.fence >= known.fence, 'a-fence-never-falls', { from: known.fence, to: own.fence })
    known = own
    if (held.record === text) {
      if (isWritten)
        log('debug', 'The shared store has the last answer again', { event: 'share-repaired', by })
    } else if (!adoptRecord(held.record))
      throw new StoreError('lost', 'What is written to the shared store does not stay there')
  }

  /**
   * This host has asked: its answer is known from now on, and is to be written. A larger record that came during
   * the request remains.
   */
  function setOwn(answer: Known): void {
    const own = { ...answer, fence: Math.max(Math.floor(storeMs(answer.sentAtMs)), answer.fence) }
    if (isLarger(known, own)) return
    invariant(own.fence >= known.fence, 'a-fence-never-falls', { from: known.fence, to: own.fence })
    known = own
    isNew = false
    ownWait = null
  }

  return {
    bootMs,
    storeMs,
    poll,
    write,
    knownRecord,
    /**
     * Acquires the lease for this attempt, if it is free; it is the attempt's id then. `displaced`: the wait in whose
     * place it may be put. It is one step: no crash loses the wait for the others, and none of them asks in between
     * as if there had been none. Rejects with a StoreError.
     */
    async acquire(id: string, leaseMs: number, displaced: string | null): Promise<Held> {
      const held = await step(
        (dropping) => store.acquire({ drop: dropping, known, id, leaseMs }),
        displaced ?? drop,
      )
      if (held.lease === id) ownWait = null
      return held
    },
    /** Ends the lease of this attempt, or keeps its wait in the place. Rejects with a StoreError. */
    async release(id: string): Promise<void> {
      const kept = ownWait?.id === id ? sealedWait(ownWait) : null
      const { record } = await step((dropping) => store.write({ drop: dropping, id, record: null, kept }))
      adoptRecord(record)
    },
    known: (): Known => known,
    hosts: (): number | null => hosts,
    /** The keeper does not have the answer that is known. */
    isNew: (): boolean => isNew,
    delivered(): void {
      isNew = false
    },
    setOwn,
    /** The keeper got this answer without the session. If it is newer than the known one, it is this host's own. */
    learn(found: Known): void {
      if (found.answer === null || found.sentAtMs <= known.sentAtMs || isSameAnswer(found, known)) return
      setOwn({ ...found, fence: known.fence + 1, isWritten: false })
    },
    /** This host has asked and got no answer that counts: its wait holds for all, and is to be written. */
    setOwnWait(wait: Wait): void {
      ownWait = wait
    },
    /** The text is of no use: the next step removes it, and if it is this host's wait, that is over. */
    discard(text: string): void {
      drop = text
      if (ownWait !== null && text.includes(ownWait.id)) ownWait = null
    },
  }
}
