// The state that outlives the process: the token for this boot, and for longer the attempts, so that a restart asks no more than it must.
import { readFileSync } from 'node:fs'
import { join } from 'node:path'
import { withTimeout, type Clock } from '../lib/clock.ts'
import { errorCode } from '../lib/error.ts'
import { fs } from '../lib/fs.ts'
import type { Log } from '../lib/log.ts'
import { hmacSha256, randomHex } from '../lib/crypto.ts'
import type { Credentials } from '../lib/secret.ts'
import { onFileSystem } from '../lib/disk-queue.ts'
import type { SaveState } from '../token/keeper.ts'
import type { Asked, SavedFleet, TokenState } from '../token/state.ts'
import { recalledState, savedStateOf, savedTokenOf } from './recall.ts'
import { createStateFile, type StateFile } from './state-file.ts'
import {
  formatSavedState,
  formatSavedToken,
  parseSavedState,
  parseSavedToken,
  type Written,
} from './state-format.ts'

export interface StateStore {
  /** See TokenState. */
  credentialsIdOf(baseUrl: string, credentials: Credentials, description?: string | null): string
  /**
   * The state to begin with. From its return on, the files say that the daemon runs: ending without `close` is a crash.
   * Never fails: a file that cannot be used is logged and counts as not there.
   */
  load(settings: Asked): Promise<TokenState>
  readonly save: SaveState
  /** The fence and the size of the fleet, as they were loaded or last set. */
  fleet(): SavedFleet
  /** Saved with the next state. */
  setFleet(fleet: SavedFleet): void
  /** Why the state cannot be saved: one sentence with the remedy; null where it can. */
  problem(): string | null
  /** Writes again what could not be written, or what was removed from outside. Never fails. */
  tick(): Promise<void>
  /** An orderly stop: the next start may ask again what was refused. Never fails, and does not wait for a disk that hangs. */
  close(state: TokenState): Promise<void>
}

const KEY_BYTES = 32
/** Neither the start nor the end waits longer for a disk. */
const MAX_WAIT_MS = 2_000

/**
 * Opens the store in these directories, and makes its key where there is none. Only for a daemon that already has
 * its sockets: a second one must not touch the files of the first.
 */
export async function createStateStore(options: {
  runtimeDirectory: string
  stateDirectory: string
  clock: Clock
  log: Log
  bootIdFile?: string
}): Promise<StateStore> {
  const { runtimeDirectory, stateDirectory, clock, log } = options
  const tokenFile = createStateFile(join(runtimeDirectory, 'kept.json'), { log, isRevocable: true })
  const stateFile = createStateFile(join(stateDirectory, 'memory.json'), { log })
  const keyFile = createStateFile(join(stateDirectory, 'key'), { log })
  const key = await openKey(keyFile, withinLimit)
  const bootId = readBootId(options.bootIdFile ?? '/proc/sys/kernel/random/boot_id')
  let fleet: SavedFleet = { fence: 0, hosts: 0 }

  async function withinLimit(work: Promise<unknown>): Promise<void> {
    await withTimeout(MAX_WAIT_MS, work, clock)
  }

  /** Reports whether the file was written in this boot; a runtime directory in memory does not outlive one. */
  async function isThisBoot(written: Written): Promise<boolean> {
    if (written.bootId === null || bootId === null) return isInMemory(runtimeDirectory)
    return written.bootId === bootId
  }

  async function load(settings: Asked): Promise<TokenState> {
    await withinLimit(Promise.all([tokenFile, stateFile, keyFile].map(async (file) => file.begin())))
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
    await withinLimit(write(recalled.state, { isOrderly: false }))
    return recalled.state
  }

  async function write(state: TokenState, { isOrderly }: { isOrderly: boolean }): Promise<void> {
    const at: Written = { at: clock.now(), bootId }
    const token = savedTokenOf(state, fleet)
    const saved = savedStateOf(state, { isOrderly, ...fleet })
    // The token first: if the process ends in between, the next start knows more than it needs to, not less.
    await (token === null
      ? tokenFile.remove()
      : tokenFile.write(token, (value) => formatSavedToken(value, at)))
    await stateFile.write(saved, (value) => formatSavedState(value, at))
  }

  return {
    credentialsIdOf(baseUrl, { apiKey, apiSecret }, description = null) {
      const id = hmacSha256(key, JSON.stringify([baseUrl, apiKey.reveal(), apiSecret.reveal()]))
      return description === null ? id : `${hmacSha256(key, description)}:${id}`
    },
    load,
    save: async (state) => write(state, { isOrderly: false }),
    fleet: () => fleet,
    setFleet(next) {
      fleet = next
    },
    problem: () => stateFile.error() ?? keyFile.error() ?? tokenFile.error(),
    async tick() {
      await keyFile.tick()
      await tokenFile.tick()
      await stateFile.tick()
    },
    close: async (state) => withinLimit(write(state, { isOrderly: true })),
  }
}

/** The key of the fingerprints, made once. Without it saved state cannot be attributed, and is ignored. */
async function openKey(
  file: StateFile,
  withinLimit: (work: Promise<void>) => Promise<void>,
): Promise<string> {
  const known = await file.read(
    (text) => (KEY_TEXT.test(text) ? text.trim() : undefined),
    (text) => text,
  )
  const key = known ?? randomHex(KEY_BYTES)
  await withinLimit(file.write(key, (text) => `${text}\n`))
  return key
}

const KEY_TEXT = /^[0-9a-f]{64}\n$/

/** The kernel's own file, which never blocks. Null where it cannot be read: `ProcSubset=pid` hides it. */
function readBootId(path: string): string | null {
  try {
    return readFileSync(path, 'utf8').trim()
  } catch (error) {
    if (errorCode(error) === undefined) throw error
    return null
  }
}

/** Reports whether the directory is on a file system that lives in memory, and so does not outlive the boot. */
export async function isInMemory(directory: string): Promise<boolean> {
  const found = await onFileSystem(directory, async () => fs.statfs(directory)).catch(() => undefined)
  return found !== undefined && IN_MEMORY_TYPES.has(found.type)
}

/** `f_type` of tmpfs and ramfs, from statfs(2). */
const IN_MEMORY_TYPES = new Set([0x01021994, 0x858458f6])
