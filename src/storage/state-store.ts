// Saves the state for the next start: so a restart does not ask the service more often than it must. Two files hold it,
// and a start reads one of them: that of the runtime directory, for the same boot, with the token; or, where that is not
// there, that of the state directory, without the token, whose instants are moved to the present boot by the wall clock.
import { createHmac, randomBytes } from 'node:crypto'
import { statfs } from 'node:fs/promises'
import { join } from 'node:path'
import { createOwnFile } from '../files/managed-file.ts'
import type { FileError } from '../files/file-error.ts'
import { OWN_FILES } from '../host/paths.ts'
import { withTimeout, type Clock, type Instant } from '../lib/clock.ts'
import type { Log } from '../lib/log.ts'
import { usableToken } from '../token/selectors.ts'
import { initialState, type Files, type TokenState } from '../token/state.ts'
import { afterStart, withoutToken } from '../token/transitions.ts'

export type StateStore = Awaited<ReturnType<typeof createStateStore>>

/** The state of a former process. */
export interface Saved {
  /** When it was saved. */
  readonly at: Instant
  /** The daemon was stopped, and did not crash. */
  readonly isOrderly: boolean
  readonly state: TokenState
}
/** It is raised when the state has other facts. A file of another version is ignored, which costs one request. */
const VERSION = 11

const KEY_BYTES = 32
const KEY_TEXT = /^[0-9a-f]{64}\n$/
/** The longest time that the start or the end of the daemon waits for a disk. */
const MAX_WAIT_MS = 2_000
/** `f_type` of tmpfs and ramfs, from statfs(2): such a directory does not outlive the boot. */
const IN_MEMORY_TYPES = new Set([0x01021994, 0x858458f6])

/**
 * Opens the store in these directories, and makes its key if there is none. Only for a daemon that has the
 * lock on its directories: a second one must not touch the files of the first.
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
  const { runtimeDirectory: runtime, stateDirectory: lasting } = OWN_FILES
  const runtimeFile = createOwnFile(join(runtimeDirectory, runtime.state), log, { mayStay: false })
  const stateFile = createOwnFile(join(stateDirectory, lasting.state), log)
  const keyFile = createOwnFile(join(stateDirectory, lasting.key), log)
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
  const fileSystem = await withinLimit(statfs(runtimeDirectory).catch(() => null))
  /** A directory that is not in memory could hold the file of another boot. */
  const isVolatile = IN_MEMORY_TYPES.has(fileSystem?.type ?? 0)

  const fingerprintOf = (text: string): string => createHmac('sha256', key).update(text).digest('hex')

  /** Its fingerprint is a second line, so that no text of others is ever believed. */
  function sealed(saved: Saved): string {
    const text = JSON.stringify(saved)
    return `${text}\n${fingerprintOf(`${VERSION} ${text}`)}\n`
  }

  /** Undefined: it is torn, foreign or of another version. */
  function unsealed(content: string): Saved | undefined {
    const [text = '', seal] = content.split('\n')
    return seal === fingerprintOf(`${VERSION} ${text}`) ? (JSON.parse(text) as Saved) : undefined
  }

  async function save(state: TokenState, isOrderly = false): Promise<void> {
    const at = clock.now()
    // A token that has ended stays in no file.
    const kept = usableToken(state, at) === null ? withoutToken(state, at) : state
    // The newest facts first: where both files are there, the first one alone is read.
    await runtimeFile.write(isVolatile ? sealed({ at, isOrderly, state: kept }) : null)
    await stateFile.write(sealed({ at, isOrderly, state: withoutToken(state, at) }))
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
      const kept = isVolatile ? await runtimeFile.read(unsealed) : null
      const lasted = kept === null ? await stateFile.read(unsealed) : null
      const former = kept ?? (lasted && afterBoot(lasted, now))
      const { isOrderly, state } = former ?? { isOrderly: false, state: initialState(read, now) }
      const begun = afterStart(state, { ...read, isOrderly }, { now, drawn })
      await withinLimit(save(begun))
      return begun
    },
    save: async (facts: TokenState): Promise<void> => save(facts),
    /** Why the state cannot be saved; null if it can. */
    problem: (): FileError | null => stateFile.error() ?? keyFile.error() ?? runtimeFile.error(),
    /** Writes again what could not be written, or what was removed from outside. Never fails. */
    async maintain(): Promise<void> {
      await Promise.all(files.map(async (file) => file.maintain()))
    },
    /** An orderly stop: the next start may ask a refused pair once. Never fails, nor waits for a disk that hangs. */
    async close(facts: TokenState): Promise<void> {
      await withinLimit(save(facts, true))
    },
  }
}

/** The part that was saved before the boot, on the present clocks. */
export function afterBoot(saved: Saved, now: Instant): Saved {
  const { state, at } = saved
  // The wall clock may have been set back between the boots: then no time has passed, and no wait is longer than it was.
  const byMs = now.bootMs - at.bootMs - Math.max(0, now.wallMs - at.wallMs)
  const clocks = { wallMs: now.wallMs - now.bootMs, serviceMs: null }
  return { ...saved, state: { ...moved(state, byMs), clocks } }
}

/** The same facts, with each instant of the boot clock later by so much. */
function moved<Facts>(facts: Facts, byMs: number): Facts {
  if (typeof facts !== 'object' || facts === null || Array.isArray(facts)) return facts
  const entries = Object.entries(facts).map(([name, fact]: [string, unknown]) => {
    const isInstant = typeof fact === 'number' && (name === 'bootMs' || name.endsWith('AtMs'))
    return [name, isInstant ? fact + byMs : moved(fact, byMs)] as const
  })
  return Object.fromEntries(entries) as Facts
}
