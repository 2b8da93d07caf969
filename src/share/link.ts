// The link of a host to the store of one account: the last answer that the host knows, the store's clock, and
// looks, which bring both sides to the same answer.
import type { Clock } from '../lib/clock.ts'
import type { Log } from '../lib/log.ts'
import { AHEAD_MS, isLarger, isOfUse, knownOf, NOTHING, recordOf, type Known, type Resumed } from './known.ts'
import type { Seal } from './seal.ts'
import { StoreError, type Store } from './store.ts'
import type { createTelemetry } from './telemetry.ts'

export type Link = ReturnType<typeof createLink>

export function createLink(options: {
  readonly store: Store
  readonly seal: Seal
  readonly clock: Pick<Clock, 'now'>
  readonly log: Log
  readonly timeoutMs: number
  readonly telemetry: ReturnType<typeof createTelemetry>
  readonly resumed: Resumed
}) {
  const { store, seal, clock, log, timeoutMs, telemetry } = options
  let { known, hosts } = options.resumed
  /** The keeper does not have the answer that is known. */
  let isNew = false
  /** The lead of the store's clock over the boot clock; null: it was never read. */
  let aheadMs: number | null = null
  /** What was found to be of no use, until the next call removes it. */
  let drop: string | null = null

  const bootMs = (): number => clock.now().bootMs
  /** The store's clock at this moment of the boot clock. */
  const storeMs = (atMs = bootMs()): number => atMs + (aheadMs ?? 0)

  /** Reads the clock of the store with each call. `atMs`: the moment of the answer on the boot clock. */
  async function call<T extends { nowMs: number }>(command: (drop: string | null) => Promise<T>) {
    await store.contact
    const dropping = drop
    const sentMs = bootMs()
    const reply = await command(dropping)
    const receivedMs = bootMs()
    if (drop === dropping) drop = null
    if (receivedMs - sentMs > timeoutMs)
      throw new StoreError('lost', 'The answer of the server came too late')
    const atMs = (sentMs + receivedMs) / 2
    aheadMs = reply.nowMs - atMs
    return { ...reply, atMs }
  }

  /** The age that the record says is not the one that this host counts: the store's clock was set. */
  function isShifted(): boolean {
    if (known.at === null || aheadMs === null) return false
    return Math.abs(known.at - storeMs(known.sentAtMs)) > AHEAD_MS
  }

  /**
   * Takes a larger record; `same`: it is known; `useless`: the known one, if there is any, belongs in its
   * place.
   */
  function take(text: string): 'taken' | 'same' | 'useless' {
    const opened = seal.open('record', text)
    if (opened === null) telemetry.unreadable()
    if (opened?.id === known.id) {
      // Dated twice, if the first write seemed to have failed.
      const fence = known.isWritten ? Math.max(known.fence, opened.fence) : opened.fence
      known = { ...known, fence, at: opened.at, isWritten: true }
      if (opened.fence === fence && !isShifted()) return 'same'
    } else if (opened !== null && isOfUse(opened, storeMs())) {
      if (!known.isWritten || !isLarger(opened, known)) return 'useless'
      known = knownOf(opened, storeMs(0))
      isNew = true
      return 'taken'
    }
    drop = text
    return 'useless'
  }

  /** Rejects with a StoreError if the store cannot be used. */
  async function look(): Promise<void> {
    const before = known
    const isForText = !before.isWritten || isShifted()
    const reply = await call((dropping) =>
      store.look({ drop: dropping, known: isForText ? NOTHING : before }),
    )
    if (reply.hosts > 0) ({ hosts } = reply)
    // An attempt has ended meanwhile, or the clock was set: looks again.
    if (known !== before || (!isForText && isShifted())) return look()
    if (!reply.isKnown && (reply.record === null || take(reply.record) === 'useless')) await write()
    telemetry.connected()
  }

  /** Writes the answer that is known, and takes a larger one. Rejects with a StoreError. */
  async function write(): Promise<void> {
    const { answer, by, id, sentAtMs, isWritten } = known
    const at = Math.floor(storeMs(sentAtMs))
    const own = { ...known, fence: isWritten ? known.fence : Math.max(at, known.fence), at, isWritten: true }
    const content = answer && recordOf(answer, { by, at })
    if (content === null || !isOfUse(content, storeMs())) {
      known = { ...known, isWritten: true }
      return
    }
    const text = seal.seal('record', own, content)
    const record = { text, keepMs: Math.ceil(content.end - storeMs()) }
    const reply = await call((dropping) => store.write({ drop: dropping, id, record, kept: null }))
    if (known.id !== id) return
    known = own
    if (reply.record === text && isWritten)
      log('debug', 'The shared store has the last answer again', { event: 'share-repaired', by })
    if (reply.record !== text && (reply.record === null || take(reply.record) === 'useless'))
      throw new StoreError('lost', 'What is written to the shared store does not stay there')
  }

  return {
    bootMs,
    storeMs,
    call,
    take,
    look,
    write,
    known: (): Known => known,
    hosts: (): number | null => hosts,
    /** An answer that the keeper does not have. */
    isNew: (): boolean => isNew,
    delivered(): void {
      isNew = false
    },
    /** This host has asked: its answer is known from now on, and is to be written. */
    setOwn(own: Known): void {
      known = own
      isNew = false
    },
    /** The next call removes this text. */
    discard(text: string): void {
      drop = text
    },
  }
}
