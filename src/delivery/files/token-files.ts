// The token files: every entry of `tokenFiles` holds the token while it may be used, and is absent otherwise.
import type { Config, TokenFileConfig } from '../../config/config.ts'
import { raceAbort } from '../../lib/tasks.ts'
import { formatInstant } from '../../lib/clock.ts'
import type { Log } from '../../lib/log.ts'
import { createManagedFile, type Content, type ManagedFile } from '../../files/managed-file.ts'
import type { RemedyOf } from '../../host/remedy.ts'
import { needsQuotes, renderTemplate } from '../../token/template.ts'
import type { StatusResult, TokenUse } from '../../protocol.ts'
import type { Keeper } from '../../token/keeper.ts'
import { usableToken, usableUntilMs } from '../../token/state.ts'
import type { Token } from '../../token/token.ts'
import { textOf } from '../token-format.ts'

/** At most so many files are worked on at once: a disk that hangs leaves threads to all else (of 16). */
const MAX_RUNNING = 8
/** The longest time that the daemon's end waits for a disk. */
const STOP_WAIT_MS = 1_000

export type TokenFilesConfig = Pick<Config, 'tokenFiles'>

interface Entry {
  /** Null: it is no longer configured, and is to be removed. */
  config: TokenFileConfig | null
  readonly file: ManagedFile
}

export function createTokenFiles(options: {
  config: TokenFilesConfig
  keeper: Pick<Keeper, 'state' | 'now' | 'onEvent'>
  log: Log
  remedyOf: RemedyOf
}) {
  const { keeper, log, remedyOf } = options
  /** Of all token files, also former ones. */
  const counts = { writes: 0, repairs: 0, errors: 0 }
  const inTurn = createTurns(MAX_RUNNING)
  /** By path. */
  const entries = new Map<string, Entry>()
  /** Templates of which it was said that the token may need quotes. */
  const warned = new Set<string>()
  configure(options.config)

  function configure(config: TokenFilesConfig): void {
    for (const entry of entries.values()) entry.config = null
    for (const next of config.tokenFiles) {
      const entry = entries.get(next.path)
      if (entry === undefined) addEntry(next)
      else entry.config = next
    }
  }

  function addEntry(config: TokenFileConfig): void {
    const desired = (): Content | null => desiredOf(entry)
    const entry: Entry = { config, file: createManagedFile(config.path, { desired, log, counts, inTurn }) }
    entries.set(config.path, entry)
  }

  function desiredOf({ config }: Entry): Content | null {
    if (config === null) return null
    const state = keeper.state()
    const token = usableToken(state, keeper.now())
    if (token === null) return null
    if (config.format === 'template') warnOfQuotes(config.path, token.accessToken)
    return { text: contentOf(config, token, state.use), attributes: config, mayStay: () => isGood(token) }
  }

  function warnOfQuotes(path: string, accessToken: string): void {
    if (warned.has(path) || !needsQuotes(accessToken)) return
    warned.add(path)
    log('warning', 'The token has characters that its template may have to quote', {
      event: 'template-characters',
      path,
      remedy: 'Check that the program reads the file as meant, with ${accessToken} in quotes in the template',
    })
  }

  /** Reports whether the token may stay in a file that cannot be written. */
  function isGood(token: Token): boolean {
    const { baseUrl, refusedFingerprint } = keeper.state()
    const isRefused = token.fingerprint === refusedFingerprint || token.baseUrl !== baseUrl
    return !isRefused && keeper.now().bootMs < usableUntilMs(token)
  }

  async function reconcile(): Promise<void> {
    await Promise.all([...entries].map(reconcileEntry))
  }

  async function reconcileEntry([path, entry]: [string, Entry]): Promise<void> {
    const { file } = entry
    await file.reconcile()
    // A reload may have configured it again meanwhile.
    if (entry.config === null && file.error() === null && !file.isPresent()) entries.delete(path)
  }

  return {
    /** Maintains the files until the signal is aborted. */
    async run(signal: AbortSignal): Promise<void> {
      const failed = Promise.withResolvers<never>()
      const unsubscribe = keeper.onEvent(({ type }) => {
        if (type !== 'attempted') reconcile().catch(failed.reject)
      })
      if (!signal.aborted) reconcile().catch(failed.reject)
      await raceAbort(failed.promise, signal).finally(unsubscribe)
      await raceAbort(reconcile(), AbortSignal.timeout(STOP_WAIT_MS))
    },
    /** Uses other entries from now on. Files of entries that are gone are removed. */
    async reconfigure(config: TokenFilesConfig): Promise<void> {
      configure(config)
      await reconcile()
    },
    status: (): StatusResult['files'] =>
      [...entries.values()].flatMap(({ config, file }) => {
        if (config === null) return []
        const error = file.error()
        return {
          path: config.path,
          format: config.format,
          ok: error === null,
          error: error && remedyOf({ kind: 'file', error }),
          present: file.isPresent(),
          writtenAt: file.writtenAt()?.toISOString() ?? null,
          repairs: file.repairs(),
        }
      }),
    /** Sums over all token files, since the start. */
    counts: () => ({ ...counts }),
  }
}

/** Does so many works at once; the others wait for their turn, in the order in which they came. */
function createTurns(count: number) {
  let free = count
  const waiting: (() => void)[] = []
  return async (work: () => Promise<void>): Promise<void> => {
    if (free > 0) free -= 1
    else await new Promise<void>((resolve) => waiting.push(resolve))
    await work().finally(() => {
      const begin = waiting.shift()
      if (begin === undefined) free += 1
      else begin()
    })
  }
}

function contentOf({ format, template }: TokenFileConfig, token: Token, use: TokenUse): string {
  const { accessToken, generation, fingerprint, baseUrl, expiresAtMs, received } = token
  const expiresAt = formatInstant(expiresAtMs, received)
  const obtainedAt = formatInstant(received.bootMs, received)
  if (format === 'template')
    return renderTemplate(template ?? '', { accessToken, expiresAt, obtainedAt, fingerprint, baseUrl })
  return textOf[format]({ accessToken, ...use, expiresAt, obtainedAt, generation })
}
