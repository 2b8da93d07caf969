// The state that outlives the process: the token for this boot, and for longer the attempts, so that a restart asks no more than it must.
import { readFileSync } from 'node:fs'
import { join } from 'node:path'
import { withTimeout, type Clock } from '../lib/clock.ts'
import { hmacSha256, randomHex } from '../lib/crypto.ts'
import { onFileSystem } from '../lib/disk-queue.ts'
import { fallbackOnSystemError } from '../lib/error.ts'
import { fs } from '../lib/fs.ts'
import type { Log } from '../lib/log.ts'
import { createOwnFile } from '../lib/own-file.ts'
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
  const tokenFile = createOwnFile(join(runtimeDirectory, 'kept.json'), { log, isRevocable: true })
  const stateFile = createOwnFile(join(stateDirectory, 'memory.json'), { log })
  const keyFile = createOwnFile(join(stateDirectory, 'key'), { log })
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
