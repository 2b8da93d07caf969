// The token files: every entry of `tokenFiles` holds the token while it may be used, and is absent otherwise.
import { join } from 'node:path'
import type { Config, TokenFileConfig } from '../../config/config.ts'
import { raceAbort } from '../../lib/tasks.ts'
import { lstatIfAny, onFile, type FileAttributes } from '../../files/atomic-file.ts'
import { formatInstant } from '../../lib/clock.ts'
import type { Log } from '../../lib/log.ts'
import { parseJson } from '../../lib/input.ts'
import { createManagedFile, type Content, type ManagedFile } from '../../files/managed-file.ts'
import { createOwnFile } from '../../files/own-file.ts'
import { STOP_WAIT_MS } from '../../files/in-directory.ts'
import { OWN_FILES } from '../../host/paths.ts'
import type { RemedyOf } from '../../host/remedy.ts'
import { needsQuotes, renderTemplate } from '../../token/template.ts'
import type { StatusResult, TokenUse } from '../../protocol.ts'
import type { Keeper } from '../../token/keeper.ts'
import { usableToken, usableUntilMs } from '../../token/state.ts'
import type { Token } from '../../token/token.ts'
import { textOf } from '../token-format.ts'

export type TokenFilesConfig = Pick<Config, 'tokenFiles' | 'stateDirectory'>

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
  /** By path. */
  const entries = new Map<string, Entry>()
  const written = createWrittenFiles(options.config.stateDirectory, log)
  /** Templates of which it was said that the token may need quotes. */
  const warned = new Set<string>()
  configure(options.config)

  function addEntry(config: TokenFileConfig | null, attributes: FileAttributes & { path: string }): void {
    const desired = (): Content | null => desiredOf(entry)
    const file = createManagedFile(attributes, { desired, log, mayFormerStay: false, counts })
    const entry: Entry = { config, file }
    entries.set(attributes.path, entry)
  }

  function configure(config: TokenFilesConfig): void {
    for (const entry of entries.values()) entry.config = null
    for (const next of config.tokenFiles) {
      const entry = entries.get(next.path)
      if (entry === undefined) addEntry(next, next)
      else {
        entry.config = next
        entry.file.reconfigure(next)
      }
    }
  }

  function desiredOf({ config }: Entry): Content | null {
    if (config === null) return null
    const state = keeper.state()
    const token = usableToken(state, keeper.now())
    if (token === null) return null
    if (config.format === 'template') warnOfQuotes(config.path, token.accessToken)
    return { text: contentOf(config, token, state.use), mayStay: () => isGood(token) }
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
    await Promise.all([...[...entries].map(reconcileEntry), written.reconcile()])
  }

  async function reconcileEntry([path, entry]: [string, Entry]): Promise<void> {
    const { config, file } = entry
    await file.reconcile()
    if (config === null) {
      // A reload may have configured it meanwhile.
      if (file.error() !== null || file.isPresent() || entry.config !== null) return
      entries.delete(path)
      await written.remove(path)
    } else if (file.isPresent() && file.writtenAt() !== null) await written.add(path)
  }

  /** Finds files of a former run that are no longer configured: a setting may have changed meanwhile. */
  async function readFormer(): Promise<void> {
    for (const path of (await written.begin()).filter((listed) => !entries.has(listed))) {
      if (await isForeign(path)) await written.remove(path)
      // A reload may have configured it meanwhile.
      else if (!entries.has(path)) addEntry(null, { path, mode: 0o600 })
    }
    await reconcile()
  }

  return {
    /** Removes leftovers of a crash, and maintains the files until the signal is aborted. */
    async run(signal: AbortSignal): Promise<void> {
      const failed = Promise.withResolvers<never>()
      // Not awaited: a disk that hangs must not hold up other files.
      const list = readFormer().catch(failed.reject)
      const unsubscribe = keeper.onEvent(({ type }) => {
        if (type !== 'attempted') reconcile().catch(failed.reject)
      })
      if (!signal.aborted) reconcile().catch(failed.reject)
      await raceAbort(failed.promise, signal).finally(unsubscribe)
      await raceAbort(Promise.all([list, reconcile()]), AbortSignal.timeout(STOP_WAIT_MS))
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

/** Reports whether the file belongs to another user: then this daemon has not written it. */
async function isForeign(path: string): Promise<boolean> {
  const uid = process.geteuid!()
  const stats = await onFile(path, async () => lstatIfAny(path)).catch(() => null)
  return stats !== null && uid !== 0 && stats.uid !== uid
}

function contentOf({ format, template }: TokenFileConfig, token: Token, use: TokenUse): string {
  const { accessToken, generation, fingerprint, baseUrl, expiresAtMs, received } = token
  const expiresAt = formatInstant(expiresAtMs, received)
  const obtainedAt = formatInstant(received.bootMs, received)
  if (format === 'template')
    return renderTemplate(template ?? '', { accessToken, expiresAt, obtainedAt, fingerprint, baseUrl })
  return textOf[format]({ accessToken, ...use, expiresAt, obtainedAt, generation })
}

/** `written-files.json` in the state directory: paths of token files, for the removal of the package. */
function createWrittenFiles(stateDirectory: string, log: Log) {
  const failure = { sentence: 'Cannot keep the list of token files', event: 'state-file-error' }
  const file = createOwnFile(join(stateDirectory, OWN_FILES.stateDirectory.writtenFiles), { log, failure })
  const paths = new Set<string>()
  let isRead = false

  async function reconcile(): Promise<void> {
    if (isRead) await file.write(paths.size === 0 ? null : [...paths].toSorted())
  }

  return {
    /** Reads the list of former runs and returns it; from here on it is written. Never fails. */
    async begin(): Promise<readonly string[]> {
      await file.begin()
      const former = (await file.read(parseList)) ?? []
      for (const each of former) paths.add(each)
      isRead = true
      return former
    },
    async add(added: string): Promise<void> {
      if (paths.has(added)) return
      paths.add(added)
      await reconcile()
    },
    /** A token file is no longer configured, and gone. */
    async remove(removed: string): Promise<void> {
      if (paths.delete(removed)) await reconcile()
    },
    reconcile,
  }
}

function parseList(text: string): string[] | undefined {
  const list = parseJson(text)
  return Array.isArray(list) ? list.filter((item) => typeof item === 'string') : undefined
}
