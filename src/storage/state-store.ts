// The state that outlives the process: the token for this boot, and for longer the attempts, so that a restart asks no more than it must.
import { readFileSync } from 'node:fs'
import { join } from 'node:path'
import { onFile, readSmallFile } from '../lib/atomic-file.ts'
import { withTimeout, type Clock } from '../lib/clock.ts'
import { hmacSha256, randomHex } from '../lib/crypto.ts'
import { onFileSystem } from '../lib/disk-queue.ts'
import { errorCode, fallbackOnSystemError } from '../lib/error.ts'
import { FileError } from '../lib/file-error.ts'
import { fs } from '../lib/fs.ts'
import type { Log } from '../lib/log.ts'
import { createManagedFile } from '../lib/managed-file.ts'
import { nameOf } from '../lib/posix-ids.ts'
import type { Credentials } from '../lib/secret.ts'
import type { Asked, SavedFleet, TokenState } from '../token/state.ts'
import { recalledState, savedStateOf, savedTokenOf } from './recall.ts'
import {
  formatSavedState,
  formatSavedToken,
  parseSavedState,
  parseSavedToken,
  type Written,
} from './state-format.ts'

export type StateStore = Awaited<ReturnType<typeof createStateStore>>

const KEY_BYTES = 32
const KEY_TEXT = /^[0-9a-f]{64}\n$/
/** Neither the start nor the end waits longer for a disk. */
const MAX_WAIT_MS = 2_000
/** Well above the size of a token of 16 KiB and the longest detail. */
const MAX_FILE_BYTES = 256 * 1024
/** `f_type` of tmpfs and ramfs, from statfs(2). */
const IN_MEMORY_TYPES = new Set([0x01021994, 0x858458f6])

/**
 * Opens the store in these directories, and makes its key where there is none. Only for a daemon that already has
 * its sockets: a second one must not touch the files of the first.
 */
export async function createStateStore({
  runtimeDirectory,
  stateDirectory,
  clock,
  log,
  bootIdFile = '/proc/sys/kernel/random/boot_id',
}: {
  runtimeDirectory: string
  stateDirectory: string
  clock: Clock
  log: Log
  bootIdFile?: string
}) {
  const tokenFile = createStateFile(join(runtimeDirectory, 'kept.json'), { log, isRevocable: true })
  const stateFile = createStateFile(join(stateDirectory, 'memory.json'), { log })
  const keyFile = createStateFile(join(stateDirectory, 'key'), { log })
  const files = [keyFile, tokenFile, stateFile]
  const key = await openKey()
  const bootId = readBootId(bootIdFile)
  let fleet: SavedFleet = { fence: 0, hosts: 0 }

  async function withinLimit(work: Promise<unknown>): Promise<void> {
    await withTimeout(MAX_WAIT_MS, work, clock)
  }

  /** The key of the fingerprints, made once. Without it saved state cannot be attributed, and is ignored. */
  async function openKey(): Promise<string> {
    const known = await keyFile.read(
      (text) => (KEY_TEXT.test(text) ? text.trim() : undefined),
      (text) => text,
    )
    const own = known ?? randomHex(KEY_BYTES)
    await withinLimit(keyFile.write(own, (text) => `${text}\n`))
    return own
  }

  /** Reports whether the file was written in this boot; a runtime directory in memory does not outlive one. */
  async function isThisBoot(written: Written): Promise<boolean> {
    if (written.bootId === null || bootId === null) return isInMemory(runtimeDirectory)
    return written.bootId === bootId
  }

  async function save(state: TokenState, { isOrderly = false } = {}): Promise<void> {
    const at: Written = { at: clock.now(), bootId }
    // The token first: if the process ends in between, the next start knows more than it needs to, not less.
    await tokenFile.write(savedTokenOf(state, fleet), (value) => formatSavedToken(value, at))
    await stateFile.write(savedStateOf(state, { isOrderly, ...fleet }), (value) =>
      formatSavedState(value, at),
    )
  }

  return {
    /** See TokenState. */
    credentialsIdOf(
      baseUrl: string,
      { apiKey, apiSecret }: Credentials,
      description: string | null = null,
    ): string {
      const id = hmacSha256(key, JSON.stringify([baseUrl, apiKey.reveal(), apiSecret.reveal()]))
      return description === null ? id : `${hmacSha256(key, description)}:${id}`
    },
    /**
     * The state to begin with. From its return on, the files say that the daemon runs: ending without `close` is a crash.
     * Never fails: a file that cannot be used is logged and counts as not there.
     */
    async load(settings: Asked): Promise<TokenState> {
      await withinLimit(Promise.all(files.map(async (file) => file.begin())))
      const [kept, remembered] = await Promise.all([
        tokenFile.read(parseSavedToken, (file) => file.kept),
        stateFile.read(parseSavedState, (file) => file.remembered),
      ])
      const recalled = recalledState(settings, {
        now: clock.now(),
        token: kept !== null && (await isThisBoot(kept.written)) ? kept.kept : null,
        saved: remembered && {
          ...remembered,
          isThisBoot: remembered.written.bootId !== null && remembered.written.bootId === bootId,
        },
      })
      fleet = recalled.fleet
      await withinLimit(save(recalled.state))
      return recalled.state
    },
    save: async (state: TokenState): Promise<void> => save(state),
    /** The fence and the size of the fleet, as they were loaded or last set. */
    fleet: (): SavedFleet => fleet,
    /** Saved with the next state. */
    setFleet(next: SavedFleet): void {
      fleet = next
    },
    /** Why the state cannot be saved: one sentence with the remedy; null where it can. */
    problem: (): string | null => stateFile.error() ?? keyFile.error() ?? tokenFile.error(),
    /** Writes again what could not be written, or what was removed from outside. Never fails. */
    async tick(): Promise<void> {
      await Promise.all(files.map(async (file) => file.tick()))
    },
    /** An orderly stop: the next start may ask again what was refused. Never fails, and does not wait for a disk that hangs. */
    close: async (state: TokenState): Promise<void> => withinLimit(save(state, { isOrderly: true })),
  }
}

/**
 * A file that only this daemon reads and writes. A disk that fails or hangs is logged once, and survived. `isRevocable`:
 * a content that was replaced and cannot be overwritten is removed.
 */
function createStateFile(path: string, options: { log: Log; isRevocable?: boolean }) {
  let text: string | null = null
  /** The value in the text; undefined: not known. */
  let held: string | null | undefined
  const failure = { sentence: 'Cannot keep what a restart must know', event: 'state-file-error' }
  const file = createManagedFile({ path, mode: 0o600 }, { desired: () => text, failure, ...options })
  return {
    begin: file.begin,
    /** The parser's result; null where there is no file or it cannot be trusted. `valueOf` it is what `write` writes. */
    async read<T>(
      parser: (text: string) => T | undefined,
      valueOf: (parsed: T) => unknown,
    ): Promise<T | null> {
      const found = await readTrusted(path)
      const value = found.text === null ? null : (parser(found.text) ?? null)
      if (value !== null) {
        text = found.text
        held = JSON.stringify(valueOf(value))
      } else if (found.fault !== null || found.text !== null) {
        options.log('warning', 'A state file cannot be used and counts as not there', {
          event: 'state-file-ignored',
          path,
          fault: found.fault ?? 'it is torn, foreign or of another version',
        })
      }
      return value
    },
    /**
     * Writes the value where it is another than last time; null: removes the file. Of several that wait for the disk only
     * the newest is written.
     */
    async write<T>(value: T | null, format: (value: T) => string): Promise<void> {
      const next = value && JSON.stringify(value)
      if (next !== held) text = value && format(value)
      held = next
      await file.reconcile()
    },
    /** Why it cannot be written: one sentence with the remedy; null where it can. */
    error: (): string | null => file.error(),
    /** Repeats what last failed, or what was undone from outside. */
    async tick(): Promise<void> {
      if (text !== null || file.error() !== null) await file.reconcile()
    },
  }
}

/** The text of a file of this daemon's; null where there is none, or where its owner, mode, size or kind speak against it. */
async function readTrusted(path: string): Promise<{ text: string | null; fault: string | null }> {
  try {
    const { content, stats } = await onFile(path, async () => readSmallFile(path, MAX_FILE_BYTES))
    if (content === null) return { text: null, fault: 'it is too long, or no regular file' }
    if (stats.uid !== process.geteuid!()) {
      return { text: null, fault: `it belongs to another user (${nameOf('user', stats.uid)})` }
    }
    if ((stats.mode & 0o077) !== 0) return { text: null, fault: 'others may read or write it (not 0600)' }
    return { text: content.toString('utf8'), fault: null }
  } catch (error) {
    if (!(error instanceof FileError)) throw error
    return error.code === 'ENOENT'
      ? { text: null, fault: null }
      : { text: null, fault: `it cannot be read (${errorCode(error.cause) ?? error.message})` }
  }
}

/** The kernel's own file, which never blocks. Null where it cannot be read: `ProcSubset=pid` hides it. */
function readBootId(path: string): string | null {
  try {
    return readFileSync(path, 'utf8').trim()
  } catch (error) {
    return fallbackOnSystemError(null)(error)
  }
}

/** Reports whether the directory is on a file system that lives in memory, and so does not outlive the boot. */
async function isInMemory(directory: string): Promise<boolean> {
  const found = await onFileSystem(directory, async () => fs.statfs(directory)).catch(() => undefined)
  return found !== undefined && IN_MEMORY_TYPES.has(found.type)
}
