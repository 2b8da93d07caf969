// Reads the files again: at each tick, for a status, and when an operator asks. Files that hold another pair
// are tried once they have been the same for a moment.
import type { OnDisk } from '../config/on-disk.ts'
import { withTimeout, type Clock } from '../lib/clock.ts'
import { createProblemLog, type Log } from '../lib/log.ts'
import type { Keeper } from '../token/keeper.ts'
import { hasOtherPair, hasSecretFiles, type InUse, type InUseEvent } from './in-use.ts'

/** Changed files must stay the same for so long before they are tried: a second may be written next. */
const SETTLE_MS = 2_000
/** The disk is first read so long after the start, because clients that wait for the start come first. */
const FIRST_AFTER_MS = 5_000
/** The longest time for which an operator's request waits for a disk. */
const MAX_READ_MS = 5_000

interface DiskWatchOptions {
  readonly keeper: Pick<Keeper, 'listenUntil'>
  /** Gives another object once a file has changed. */
  readonly readDisk: () => Promise<OnDisk>
  readonly inUse: () => InUse
  /** Without effect once the daemon stops. */
  readonly apply: (event: InUseEvent) => void
  readonly clock: Clock
  readonly log: Log
  /** That of the daemon: it ends the wait for files to stay the same. */
  readonly stop: AbortSignal
}

export function createDiskWatch({ keeper, readDisk, inUse, apply, clock, log, stop }: DiskWatchOptions) {
  const startedAtMs = clock.now().bootMs
  /** Operators who ask at one time are answered by one request. */
  let settling: Promise<void> | null = null
  const fault = createProblemLog((error) => {
    const sentence = 'The configuration on disk is faulty: the running one stays, and a restart would fail'
    if (error !== null) log('error', sentence, { event: 'configuration-faulty', error })
  })

  async function read(): Promise<OnDisk> {
    const onDisk = await readDisk()
    apply({ type: 'disk-read', onDisk, isSettled: false })
    return onDisk
  }

  async function settle(): Promise<void> {
    const onDisk = await read()
    fault.set(onDisk.kind === 'loaded' ? null : onDisk.problem)
    const isTried = inUse().candidate?.found === onDisk
    if (onDisk.kind !== 'loaded' || isTried || !hasOtherPair(inUse(), onDisk)) return
    await clock.sleep(SETTLE_MS, stop)
    if ((await readDisk()) === onDisk) apply({ type: 'disk-read', onDisk, isSettled: true })
  }

  /** Notices changed files at each tick of the keeper, until the signal is aborted. */
  async function run(signal: AbortSignal): Promise<void> {
    await keeper.listenUntil(signal, ({ type }) => {
      const isEarly = clock.now().bootMs < startedAtMs + FIRST_AFTER_MS
      if (type === 'tick' && hasSecretFiles(inUse().config) && !isEarly) void settle()
    })
  }

  return {
    read,
    /** Has another pair in the files tried. Returns once it is, or after 5 s where a disk does not answer. */
    async settle(): Promise<void> {
      settling ??= settle().finally(() => (settling = null))
      await withTimeout(MAX_READ_MS, settling, clock)
    },
    run,
  }
}
