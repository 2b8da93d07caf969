// The state that is saved for a restart: the token, for this boot only, and the facts about attempts, for
// longer. So a restart does not ask the service more often than it must.
import { readFileSync } from 'node:fs'
import { join } from 'node:path'
import { isDeepStrictEqual } from 'node:util'
import { withTimeout, type Clock } from '../lib/clock.ts'
import { hmacSha256, randomHex } from '../lib/crypto.ts'
import type { FileError } from '../files/file-error.ts'
import { inDirectory } from '../files/in-directory.ts'
import { withSystemFallback } from '../lib/error.ts'
import { fs } from '../files/fs.ts'
import { invariant } from '../lib/invariant.ts'
import type { Log } from '../lib/log.ts'
import { createOwnFile } from '../files/own-file.ts'
import { OWN_FILES } from '../host/paths.ts'
import { credentialTexts, type Credentials } from '../config/credentials.ts'
import type { ServiceSettings, TokenState } from '../token/state.ts'
import type { Token } from '../token/token.ts'
import { restoredState } from './restored-state.ts'
import {
  formatSaved,
  parseSavedState,
  parseSavedToken,
  savedStateOf,
  type Saved,
  type SavedState,
  type Written,
} from './saved-state.ts'

export type StateStore = Awaited<ReturnType<typeof createStateStore>>

const KEY_BYTES = 32
const KEY_TEXT = /^[0-9a-f]{64}\n$/
/** The longest time that the start or the end of the daemon waits for a disk. */
const MAX_WAIT_MS = 2_000
/** `f_type` of tmpfs and ramfs, from statfs(2). */
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
  bootMark = null,
  bootIdFile = '/proc/sys/kernel/random/boot_id',
}: {
  runtimeDirectory: string
  stateDirectory: string
  clock: Clock
  log: Log
  /**
   * A random text that lies in the runtime directory. Where that is in memory, the same text is the same boot;
   * another text says nothing. Null: there is none.
   */
  bootMark?: string | null
  bootIdFile?: string
}) {
  const tokenFile = createOwnFile(join(runtimeDirectory, OWN_FILES.runtimeDirectory.token), {
    log,
    mayStay: false,
  })
  const { facts, key: keyName } = OWN_FILES.stateDirectory
  const stateFile = createOwnFile(join(stateDirectory, facts), { log })
  const keyFile = createOwnFile(join(stateDirectory, keyName), { log })
  const files = [keyFile, tokenFile, stateFile]
  const key = await openKey()
  /** Null: it is hidden. The file is the kernel's own, which never blocks. */
  const bootId = withSystemFallback(null, () => readFileSync(bootIdFile, 'utf8').trim())

  async function withinLimit(work: Promise<unknown>): Promise<void> {
    await withTimeout(MAX_WAIT_MS, work, clock)
  }

  /** The key of the fingerprints, made once. Without it saved state cannot be attributed, and is ignored. */
  async function openKey(): Promise<string> {
    const found = await keyFile.read((text) => (KEY_TEXT.test(text) ? text.trim() : undefined))
    const opened = found ?? randomHex(KEY_BYTES)
    await withinLimit(keyFile.write(opened, (text) => `${text}\n`))
    return opened
  }

  /** The unit hides the id of the boot (`ProcSubset=pid`), and its runtime directory is in memory. */
  const isVolatile = await isInMemory(runtimeDirectory)

  /** Whether it was written in this boot; null: nobody knows. */
  function isThisBoot(written: Written): boolean | null {
    if (written.bootId !== null && bootId !== null) return written.bootId === bootId
    return isVolatile && bootMark !== null && written.bootMark === bootMark ? true : null
  }

  async function save(state: TokenState, { isOrderly = false } = {}): Promise<void> {
    const written: Written = { at: clock.now(), bootId, bootMark }
    // The token first: if the process ends in between, the next start has the newer token.
    await tokenFile.write(state.token, (value) => formatChecked(value, written, parseSavedToken))
    await stateFile.write(savedStateOf(state, { isOrderly }), (value) =>
      formatChecked(value, written, parseSavedState),
    )
  }

  return {
    /** Names this host among those of a fleet, for as long as the key lasts: 16 hex digits. */
    hostId: hmacSha256(key, 'host').slice(0, 16),
    /** See TokenState. */
    credentialsIdOf(baseUrl: string, credentials: Credentials, description: string | null = null): string {
      const id = hmacSha256(key, JSON.stringify([baseUrl, ...credentialTexts(credentials)]))
      return description === null ? id : `${hmacSha256(key, description)}:${id}`
    },
    /**
     * The state to begin with. From then on the files say that the daemon runs: an end without `close` is a
     * crash. Never fails: a file that cannot be used is logged and ignored.
     */
    async load(settings: ServiceSettings): Promise<TokenState> {
      const [kept, remembered] = await Promise.all([
        tokenFile.read(parseSavedToken),
        stateFile.read(parseSavedState),
      ])
      const isKept = kept && (isThisBoot(kept.written) ?? isVolatile)
      const restored = restoredState(settings, {
        now: clock.now(),
        awakeMs: clock.awakeMs(),
        kept: isKept ? kept.facts : null,
        saved: remembered && { ...remembered, isThisBoot: isThisBoot(remembered.written) ?? false },
      })
      await withinLimit(save(restored))
      return restored
    },
    save: async (state: TokenState): Promise<void> => save(state),
    /** Why the state cannot be saved; null if it can. */
    problem: (): FileError | null => stateFile.error() ?? keyFile.error() ?? tokenFile.error(),
    /** Writes again what could not be written, or what was removed from outside. Never fails. */
    async tick(): Promise<void> {
      await Promise.all(files.map(async (file) => file.tick()))
    },
    /** An orderly stop: the next start may ask again. Never fails, nor waits for a disk that hangs. */
    close: async (state: TokenState): Promise<void> => withinLimit(save(state, { isOrderly: true })),
  }
}

/** Whether the directory is on a file system that lives in memory, and so does not outlive the boot. */
async function isInMemory(directory: string): Promise<boolean> {
  return inDirectory(directory, async () => fs.statfs(directory)).then(
    ({ type }) => IN_MEMORY_TYPES.has(type),
    () => false,
  )
}

/** The text of the file, which the next start reads as the same facts. */
function formatChecked<F extends SavedState | Token>(
  facts: F,
  written: Written,
  parse: (text: string) => Saved<F> | undefined,
): string {
  const text = formatSaved(facts, written)
  const held: unknown = JSON.parse(JSON.stringify(facts))
  const isSame = isDeepStrictEqual(parse(text)?.facts, held)
  invariant(isSame, 'facts-saved-are-facts-held', { bytes: text.length })
  return text
}
