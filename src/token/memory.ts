// What outlives the process: the token for this boot, and for longer how the attempts went, so that a restart asks no more than it must.
import { createHmac, randomBytes } from 'node:crypto'
import { readFileSync } from 'node:fs'
import { join } from 'node:path'
import { clearLeftovers, FileError, onFile, removeFile, replaceFile } from '../lib/atomic-file.ts'
import type { Clock, Instant } from '../lib/clock.ts'
import { errorCode } from '../lib/error.ts'
import { isInMemory, lstatIfAny, readSmallFile } from '../lib/file-calls.ts'
import type { Log } from '../lib/log.ts'
import type { Secret } from '../lib/secret.ts'
import type { Remember } from './keeper.ts'
import {
  formatKept,
  formatRemembered,
  parseKept,
  parseRemembered,
  type Kept,
  type Remembered,
  type Written,
} from './memory-format.ts'
import { failureOf, heldToken, initialState, usableUntilMs, type Failure, type TokenState } from './state.ts'
import type { Token } from './token.ts'

export interface Memory {
  /** Keyed fingerprint of a service and its credentials. */
  subjectOf(baseUrl: string, credentials: { apiKey: Secret; apiSecret: Secret }): string
  /**
   * The state to begin with. From its return on, the files say that the daemon runs: ending without `end` is a crash.
   * Never fails: a file that cannot be used is told in the log and counts as not there.
   */
  recall(asking: { baseUrl: string; subject: string }): Promise<TokenState>
  /** Other credentials or another service are asked from now on (a reload); what follows is remembered about them. */
  changeSubject(subject: string): void
  readonly remember: Remember
  /** Writes again what could not be written, or what somebody removed. Never fails. */
  look(): Promise<void>
  /** An orderly stop: the next start may ask again what was refused. Never fails. */
  end(state: TokenState): Promise<void>
}

const PRIVATE = { mode: 0o600 }
const KEY_BYTES = 32
/** Well above what a token of 16 KiB and the longest detail take. */
const MAX_FILE_BYTES = 256 * 1024
/** The longest wait there is: `Retry-After` of an hour and a fifth of it. A clock that jumped cannot make a longer one. */
const MAX_WAIT_MS = 72 * 60_000
/** Boot clocks of two processes disagree by less: where /proc/uptime is hidden (`ProcSubset=pid`) Node tells whole seconds. */
const CLOCK_GRAIN_MS = 1_000

/**
 * Opens the memory in these directories, and makes its key where there is none. Only for a daemon that already has
 * its sockets: a second one must not touch the files of the first.
 */
export async function createMemory(options: {
  runtimeDirectory: string
  stateDirectory: string
  clock: Pick<Clock, 'now'>
  log: Log
  bootIdFile?: string
}): Promise<Memory> {
  const { clock, log, bootIdFile = '/proc/sys/kernel/random/boot_id' } = options
  const keptFile = createStateFile(join(options.runtimeDirectory, 'kept.json'), log)
  const memoryFile = createStateFile(join(options.stateDirectory, 'memory.json'), log)
  const keyFile = createStateFile(join(options.stateDirectory, 'key'), log)
  const key = await openKey(keyFile)
  const bootId = readBootId(bootIdFile)
  let subject = ''
  /** With whose credentials the token was obtained that is held. */
  let owner: { readonly fingerprint: string; readonly subject: string } | null = null

  const written = (): Written => ({ at: clock.now(), bootId })

  async function recallKept(now: Instant): Promise<Kept | null> {
    const file = await keptFile.read(parseKept, ({ kept }) => kept)
    if (file === null) return null
    const ids = [file.written.bootId, bootId]
    const isThisBoot = ids.includes(null) ? await isInMemory(options.runtimeDirectory) : ids[0] === ids[1]
    return isThisBoot && isStillGood(file.kept.token, now) ? file.kept : null
  }

  async function recallMemory(now: Instant): Promise<Remembered> {
    const file = await memoryFile.read(parseRemembered, ({ remembered }) => remembered)
    if (file === null) return NOTHING_REMEMBERED
    const isThisBoot = file.written.bootId !== null && file.written.bootId === bootId
    const isOnThisClock = isThisBoot && file.written.at.bootMs <= now.bootMs
    return onClock(file.remembered, { shiftMs: isOnThisClock ? 0 : shiftMs(file.written.at, now), now })
  }

  async function recall(asking: { baseUrl: string; subject: string }): Promise<TokenState> {
    subject = asking.subject
    await Promise.all([keptFile.clear(), memoryFile.clear(), keyFile.clear()])
    const now = clock.now()
    const [kept, remembered] = await Promise.all([recallKept(now), recallMemory(now)])
    owner = kept && { fingerprint: kept.token.fingerprint, subject: kept.subject }
    const state = stateFrom(asking, { kept, remembered, now })
    await write(state, { isOrderly: false })
    return state
  }

  function keep(token: Token): Kept {
    if (owner?.fingerprint !== token.fingerprint) owner = { fingerprint: token.fingerprint, subject }
    return { subject: owner.subject, token }
  }

  async function write(state: TokenState, { isOrderly }: { isOrderly: boolean }): Promise<void> {
    const token = heldToken(state)
    const memory = rememberedOf(state, { subject, isOrderly })
    const at = written()
    // The token first: should we end in between, the next start knows more than it needs to, not less.
    await (token === null ? keptFile.remove() : keptFile.write(keep(token), (kept) => formatKept(kept, at)))
    await memoryFile.write(memory, (remembered) => formatRemembered(remembered, at))
  }

  return {
    subjectOf: (baseUrl, { apiKey, apiSecret }) =>
      createHmac('sha256', key)
        .update(JSON.stringify([baseUrl, apiKey.reveal(), apiSecret.reveal()]))
        .digest('hex'),
    recall,
    changeSubject(next) {
      subject = next
    },
    remember: async (state) => write(state, { isOrderly: false }),
    async look() {
      for (const file of [keyFile, keptFile, memoryFile]) await file.look()
    },
    end: async (state) => write(state, { isOrderly: true }),
  }
}

// ---- what is remembered of a state, and a state out of what was remembered ------------------------------------------

function rememberedOf(
  state: TokenState,
  { subject, isOrderly }: { subject: string; isOrderly: boolean },
): Remembered {
  const { generation, alert } = state
  const refusal = state.kind === 'refused' ? state.refusal : null
  return { subject, generation, isOrderly, failure: failureOf(state), refusal, alert }
}

function stateFrom(
  asking: { baseUrl: string; subject: string },
  { kept, remembered, now }: { kept: Kept | null; remembered: Remembered; now: Instant },
): TokenState {
  const usable = kept?.token.baseUrl === asking.baseUrl ? kept : null
  const token = usable && usable.token
  const isOthersToken = usable !== null && usable.subject !== asking.subject
  const { alert, refusal, isOrderly, failure } =
    remembered.subject === asking.subject ? remembered : NOTHING_REMEMBERED
  const facts = {
    ...initialState(asking.baseUrl),
    generation: Math.max(kept?.token.generation ?? 0, remembered.generation),
    alert,
    askNow: isOthersToken || (refusal !== null && isOrderly) ? ('start' as const) : null,
  }
  if (refusal !== null) return { ...facts, kind: 'refused', token, refusal }
  const standing = isOrderly ? askedToWait(failure, now) : failure
  return token === null
    ? { ...facts, kind: 'waiting', failure: standing }
    : { ...facts, kind: 'held', token, failure: standing }
}

/** What stands of a failure after an orderly stop: only that the service itself asked us to keep away for a time. */
function askedToWait(failure: Failure | null, now: Instant): Failure | null {
  if (failure === null || failure.reason === 'rejected' || failure.notBeforeMs <= now.bootMs) return null
  return { ...failure, attempts: 1, retryAtMs: failure.notBeforeMs }
}

const NOTHING_REMEMBERED: Remembered = {
  subject: '',
  generation: 0,
  isOrderly: false,
  failure: null,
  refusal: null,
  alert: null,
}

/** Whether the token may still be handed out, and its instants are possible ones: what is in doubt is not served. */
function isStillGood(token: Token, now: Instant): boolean {
  return (
    token.received.bootMs <= now.bootMs + CLOCK_GRAIN_MS &&
    token.expiresAtMs <= now.bootMs + CLOCK_GRAIN_MS + token.lifeMs &&
    now.bootMs < usableUntilMs(token)
  )
}

/** How far the boot clock of then is from that of now, by the wall clock. */
function shiftMs(then: Instant, now: Instant): number {
  return now.bootMs - now.wallMs + (then.wallMs - then.bootMs)
}

/** The same with its instants on the boot clock of now, none of them begun in the future or waiting too long. */
function onClock(
  remembered: Remembered,
  { shiftMs: by, now }: { shiftMs: number; now: Instant },
): Remembered {
  const past = (then: Instant): Instant => ({ ...then, bootMs: Math.min(then.bootMs + by, now.bootMs) })
  const ahead = (atMs: number): number => Math.min(atMs + by, now.bootMs + MAX_WAIT_MS)
  const { failure, refusal, alert } = remembered
  return {
    ...remembered,
    failure: failure && {
      ...failure,
      since: past(failure.since),
      retryAtMs: ahead(failure.retryAtMs),
      notBeforeMs: ahead(failure.notBeforeMs),
    },
    refusal: refusal && { ...refusal, since: past(refusal.since) },
    alert: alert && { ...alert, since: past(alert.since) },
  }
}

// ---- files ----------------------------------------------------------------------------------------------------------

/** A file that only this daemon reads and writes. What goes wrong with it is told in the log, once, and survived. */
interface StateFile {
  clear(): Promise<void>
  /** What the parser makes of it; null where it is not there or cannot be trusted. `valueOf` it, `write` writes. */
  read<T>(parser: (text: string) => T | undefined, valueOf: (parsed: T) => unknown): Promise<T | null>
  /** Writes it where `value` is another than last time. */
  write<T>(value: T, format: (value: T) => string): Promise<void>
  remove(): Promise<void>
  /** Does again what last could not be done, or what somebody has undone. */
  look(): Promise<void>
}

function createStateFile(path: string, log: Log): StateFile {
  /** What the file is known to hold; null: nothing; undefined: not known. */
  let held: string | null | undefined
  let problem: string | null = null
  /** What was last to be brought about. */
  let again = (): Promise<void> => Promise.resolve()
  let last = Promise.resolve()

  /** One change at a time: the last one stands. */
  function inTurn(change: () => Promise<void>): Promise<void> {
    last = last.then(change)
    return last
  }

  function bring(next: string | null, change: () => Promise<unknown>): Promise<void> {
    return inTurn(async () => {
      again = async () => {
        if (next !== held && (await tried(change))) held = next
      }
      await again()
    })
  }

  async function tried(change: () => Promise<unknown>): Promise<boolean> {
    try {
      await change()
      problem = null
      return true
    } catch (error) {
      if (!(error instanceof FileError)) throw error
      held = undefined
      if (error.message !== problem) {
        log('error', 'Cannot keep what a restart must know', {
          event: 'state-file-error',
          path,
          error: error.message,
        })
      }
      problem = error.message
      return false
    }
  }

  return {
    async clear() {
      await tried(async () => clearLeftovers(path))
    },
    async read(parser, valueOf) {
      const { text, fault } = await readTrusted(path)
      const value = text === null ? null : (parser(text) ?? null)
      if (value !== null) held = JSON.stringify(valueOf(value))
      else if (fault === null && text === null) held = null
      else {
        log('warning', 'A state file cannot be used and counts as not there', {
          event: 'state-file-ignored',
          path,
          fault: fault ?? 'it is torn, foreign or of another version',
        })
      }
      return value
    },
    write(value, format) {
      const next = JSON.stringify(value)
      return bring(next, async () => replaceFile(path, format(value), PRIVATE))
    },
    remove: () => bring(null, async () => removeFile(path)),
    look: () =>
      inTurn(async () => {
        if (typeof held === 'string' && (await isGone(path))) held = undefined
        await again()
      }),
  }
}

/** The text of a file of ours; null where there is none, or where its owner, mode, size or kind speak against it. */
async function readTrusted(path: string): Promise<{ text: string | null; fault: string | null }> {
  try {
    const { content, stats } = await onFile(path, readSmallFile(path, MAX_FILE_BYTES))
    const isOurs = stats.uid === process.geteuid!()
    if (content === null) return { text: null, fault: 'it is too long, or no regular file' }
    if (!isOurs) return { text: null, fault: `it belongs to another user (${stats.uid})` }
    if ((stats.mode & 0o077) !== 0) return { text: null, fault: 'others may read or write it (not 0600)' }
    return { text: content.toString('utf8'), fault: null }
  } catch (error) {
    if (!(error instanceof FileError)) throw error
    return error.code === 'ENOENT'
      ? { text: null, fault: null }
      : { text: null, fault: `it cannot be read (${errorCode(error.cause) ?? error.message})` }
  }
}

async function isGone(path: string): Promise<boolean> {
  try {
    return (await onFile(path, lstatIfAny(path))) === null
  } catch (error) {
    if (!(error instanceof FileError)) throw error
    return true
  }
}

/** The key of the fingerprints, made once. Without it what is remembered belongs to nobody we know. */
async function openKey(file: StateFile): Promise<string> {
  const known = await file.read(
    (text) => (KEY_TEXT.test(text) ? text.trim() : undefined),
    (text) => text,
  )
  const key = known ?? randomBytes(KEY_BYTES).toString('hex')
  await file.write(key, (text) => `${text}\n`)
  return key
}

const KEY_TEXT = /^[0-9a-f]{64}\n$/

/** Of the kernel, which never makes anybody wait. Null where it cannot be read: `ProcSubset=pid` hides it. */
function readBootId(path: string): string | null {
  try {
    return readFileSync(path, 'utf8').trim()
  } catch (error) {
    if (errorCode(error) === undefined) throw error
    return null
  }
}
