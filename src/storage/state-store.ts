// Saves the state for the next start: so a restart does not ask the service more often than it must.
import { createHmac, randomBytes } from 'node:crypto'
import { statfs } from 'node:fs/promises'
import { join } from 'node:path'
import { createOwnFile } from '../files/managed-file.ts'
import type { FileError } from '../files/file-error.ts'
import { OWN_FILES } from '../host/paths.ts'
import { withTimeout, type Clock } from '../lib/clock.ts'
import type { Log } from '../lib/log.ts'
import { initialState, type TokenState } from '../token/state.ts'
import { afterStart, type Files } from '../token/transitions.ts'
import { lastingText, readLasting, readRuntime, runtimeText } from './saved-state.ts'

export type StateStore = Awaited<ReturnType<typeof createStateStore>>

const KEY_BYTES = 32
const KEY_TEXT = /^[0-9a-f]{64}\n$/
/** The longest time that the start or the end of the daemon waits for a disk. */
const MAX_WAIT_MS = 2_000
/** `f_type` of tmpfs and ramfs, from statfs(2): such a directory does not outlive the boot. */
const IN_MEMORY_TYPES = new Set([0x01021994, 0x858458f6])

/**
 * Opens the store in these directories, and makes its key if there is none. Only for a daemon that has the
 * instance lock: a second one must not touch the files of the first.
 */
export async function createStateStore({
  runtimeDirectory,
  stateDirectory,
  clock,
  log,
}: {
  readonly runtimeDirectory: string
  readonly stateDirectory: string
  readonly clock: Clock
  readonly log: Log
}) {
  const { state, key: keyName } = OWN_FILES.stateDirectory
  const runtimePath = join(runtimeDirectory, OWN_FILES.runtimeDirectory.state)
  const runtimeFile = createOwnFile(runtimePath, log, { mayStay: false })
  const stateFile = createOwnFile(join(stateDirectory, state), log)
  const keyFile = createOwnFile(join(stateDirectory, keyName), log)
  const files = [keyFile, runtimeFile, stateFile]

  async function withinLimit<T>(work: Promise<T>): Promise<T | undefined> {
    return withTimeout(MAX_WAIT_MS, work, clock)
  }

  /** The key of the fingerprints, made once. Without it saved state cannot be attributed, and is ignored. */
  async function openKey(): Promise<string> {
    const found = await keyFile.read((text) => (KEY_TEXT.test(text) ? text.trim() : undefined))
    const opened = found ?? randomBytes(KEY_BYTES).toString('hex')
    await withinLimit(keyFile.write(`${opened}\n`))
    return opened
  }

  const key = await openKey()
  /** Where the directory is not in memory, a file there would be that of another boot. */
  const isVolatile = (await withinLimit(isInMemory(runtimeDirectory))) ?? false

  const fingerprintOf = (text: string): string => createHmac('sha256', key).update(text).digest('hex')

  /** The text with its fingerprint as a second line: so what this daemon has not written is never believed. */
  const sealed = (text: string): string => `${text}\n${fingerprintOf(text)}\n`

  /** Empty: it is torn or foreign. */
  function unsealed(content: string): string {
    const [text = ''] = content.split('\n')
    return content === sealed(text) ? text : ''
  }

  async function save(facts: TokenState, isOrderly = false): Promise<void> {
    const at = { now: clock.now(), isOrderly }
    // The newest facts first: where both files are there, the first one alone is read.
    await runtimeFile.write(isVolatile ? sealed(runtimeText(facts, at)) : null)
    await stateFile.write(sealed(lastingText(facts, at)))
  }

  return {
    /** Fingerprint of a pair or of a service, keyed, so that it tells nothing about the text. */
    fingerprintOf,
    /**
     * The state to begin with, where the configuration files hold this; `drawn` is from [0, 1). From then on the
     * state files say that the daemon runs: an end without `close` is a crash. Never fails: a file that cannot be
     * used is logged and ignored.
     */
    async load(read: Files, drawn: number): Promise<TokenState> {
      const now = clock.now()
      const initial = initialState(read, now)
      const kept = isVolatile ? await runtimeFile.read((text) => readRuntime(unsealed(text))) : null
      const former = kept ?? (await stateFile.read((text) => readLasting(unsealed(text), now)))
      const { isOrderly = false, state: saved = initial } = former ?? {}
      const begun = afterStart(saved, { ...read, isOrderly }, { now, drawn })
      await withinLimit(save(begun))
      return begun
    },
    save: async (facts: TokenState): Promise<void> => save(facts),
    /** Why the state cannot be saved; null if it can. */
    problem: (): FileError | null => stateFile.error() ?? keyFile.error() ?? runtimeFile.error(),
    /** Writes again what could not be written, or what was removed from outside. Never fails. */
    async tick(): Promise<void> {
      await Promise.all(files.map(async (file) => file.tick()))
    },
    /** An orderly stop: the next start may ask a refused pair once. Never fails, nor waits for a disk that hangs. */
    async close(facts: TokenState): Promise<void> {
      await withinLimit(save(facts, true))
    },
  }
}

async function isInMemory(directory: string): Promise<boolean> {
  return statfs(directory).then(
    ({ type }) => IN_MEMORY_TYPES.has(type),
    () => false,
  )
}
