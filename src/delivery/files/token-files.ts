// The token files: every entry of `tokenFiles` holds the token while it may be used, and is absent otherwise.
import { join } from 'node:path'
import { isDeepStrictEqual } from 'node:util'
import type { Config, TokenFileConfig, TokenFileFormat } from '../../config/config.ts'
import { raceAbort } from '../../lib/tasks.ts'
import { lstatIfAny, onFile } from '../../lib/atomic-file.ts'
import { formatInstant, type Instant } from '../../lib/clock.ts'
import type { Log } from '../../lib/log.ts'
import { parseJson } from '../../lib/input.ts'
import { createManagedFile, createOwnFile, type Content, type ManagedFile } from '../../lib/managed-file.ts'
import { STOP_WAIT_MS } from '../../lib/in-directory.ts'
import { needsQuotes, renderTemplate } from '../../lib/template.ts'
import { STANDARD_USE, type StatusResult, type TokenUse } from '../../protocol.ts'
import type { Keeper } from '../../token/keeper.ts'
import { usableToken, usableUntilMs } from '../../token/state.ts'
import type { Token } from '../../token/token.ts'
import { isOpen } from '../peers.ts'
import { textOf } from '../token-format.ts'

export type TokenFilesConfig = Pick<Config, 'tokenFiles' | 'runtimeDirectory' | 'stateDirectory' | 'ipc'>

/** An entry of `tokenFiles`, or the file for the shell, with the format `absent` if it must not exist. */
type FileConfig = Omit<TokenFileConfig, 'format'> & { readonly format: TokenFileFormat | 'front' | 'absent' }
interface Entry {
  /** Null: it is no longer configured, and is to be removed. */
  config: FileConfig | null
  readonly file: ManagedFile
}

export function createTokenFiles(options: {
  config: TokenFilesConfig
  keeper: Pick<Keeper, 'state' | 'now' | 'onEvent'>
  log: Log
}) {
  const { keeper, log } = options
  /** Of all token files, also former ones. */
  const counts = { writes: 0, repairs: 0, errors: 0 }
  /** By path. */
  const entries = new Map<string, Entry>()
  const written = createWrittenFiles(options.config.stateDirectory, log)
  /** Templates of which it was said that the token may need quotes. */
  const warned = new Set<string>()
  let isStopped = false
  configure(options.config)

  function addEntry(config: FileConfig): void {
    const own = isTokenFile(config) ? { counts } : {}
    const desired = (): Content | null => desiredOf(entry)
    const file = createManagedFile(config, { desired, log, mayFormerStay: false, ...own })
    const entry: Entry = { config, file }
    entries.set(config.path, entry)
  }

  function configure(config: TokenFilesConfig): void {
    for (const entry of entries.values()) entry.config = null
    for (const next of filesOf(config)) {
      const entry = entries.get(next.path)
      if (entry === undefined) addEntry(next)
      else {
        entry.config = next
        entry.file.reconfigure(next)
      }
    }
  }

  function desiredOf({ config }: Entry): Content | null {
    // Without a daemon the shell must not give a token.
    if (config === null || (isStopped && config.format === 'front')) return null
    const now = keeper.now()
    const state = keeper.state()
    const token = usableToken(state, now)
    if (token === null) return null
    if (config.format === 'template') warnOfQuotes(config.path, token.accessToken)
    const text = contentOf(config, { token, use: state.use, now })
    return text === null ? null : { text, mayStay: () => isGood(token) }
  }

  function warnOfQuotes(path: string, accessToken: string): void {
    if (warned.has(path) || !needsQuotes(accessToken)) return
    warned.add(path)
    log('warning', 'The token has characters that its template may have to quote', {
      event: 'template-characters',
      path,
      remedy:
        'Check that the program reads the file as it is meant: put ${accessToken} into quotes in the template',
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
      if (file.error() !== null || file.isPresent() || entry.config !== null) return
      entries.delete(path)
      await written.remove(path)
    } else if (isTokenFile(config) && file.isPresent() && file.writtenAt() !== null) await written.add(path)
  }

  /** Finds files of a former run that are not configured any more: a setting may have changed while the daemon was stopped. */
  async function readFormer(): Promise<void> {
    for (const path of (await written.begin()).filter((listed) => !entries.has(listed))) {
      if (await isForeign(path)) await written.remove(path)
      // A reload may have configured it meanwhile.
      else if (!entries.has(path)) {
        const file = createManagedFile({ path, mode: 0o600 }, { desired: () => null, log, counts })
        entries.set(path, { config: null, file })
      }
    }
    await reconcile()
  }

  return {
    /** Removes leftovers of a crash, and maintains the files until the signal is aborted. Then only the shell's file is removed. */
    async run(signal: AbortSignal): Promise<void> {
      const failed = Promise.withResolvers<never>()
      // Not awaited: a disk that hangs must not hold up the files of others. In one directory all is done in this order.
      for (const { file } of entries.values()) file.begin().catch(failed.reject)
      const list = readFormer().catch(failed.reject)
      const unsubscribe = keeper.onEvent(({ type }) => {
        if (type !== 'attempted') reconcile().catch(failed.reject)
      })
      if (!signal.aborted) reconcile().catch(failed.reject)
      await raceAbort(failed.promise, signal).finally(unsubscribe)
      isStopped = true
      await raceAbort(Promise.all([list, reconcile()]), AbortSignal.timeout(STOP_WAIT_MS))
    },
    /** Uses other entries from now on. Files of entries that are gone are removed; what is as it should be stays as it is. */
    async reconfigure(config: TokenFilesConfig): Promise<void> {
      configure(config)
      await reconcile()
    },
    status: (): StatusResult['files'] =>
      [...entries.values()].flatMap(({ config, file }) => {
        if (config === null || !isTokenFile(config)) return []
        const error = file.error()
        return {
          path: config.path,
          format: config.format,
          ok: error === null,
          error,
          present: file.isPresent(),
          writtenAt: file.writtenAt()?.toISOString() ?? null,
          repairs: file.repairs(),
        }
      }),
    /** Sums over all token files, since the start. */
    counts: () => ({ ...counts }),
  }
}

/**
 * The entries of `tokenFiles`, and `token.front`: one line "VALID_FROM VALID_UNTIL TOKEN" for a shell that prints the token
 * without asking the daemon. It has the mode and the group of the default token file (`token` in the runtime directory, `raw`),
 * and exists only if that file is configured and all its readers may also ask the daemon (`ipc.allow` is empty). It is written
 * first, because a program that sees another token file may run that shell.
 */
function filesOf({ tokenFiles, runtimeDirectory, ipc }: TokenFilesConfig): FileConfig[] {
  const tokenPath = join(runtimeDirectory, 'token')
  const beside = tokenFiles.find(({ path, format }) => path === tokenPath && format === 'raw')
  const format = isOpen(ipc.allow) && beside !== undefined ? 'front' : 'absent'
  const path = join(runtimeDirectory, 'token.front')
  return [{ mode: 0o600, uid: null, gid: null, ...beside, path, format }, ...tokenFiles]
}

function isTokenFile({ format }: FileConfig): boolean {
  return format !== 'front' && format !== 'absent'
}

/** Reports whether the file belongs to another user: then this daemon has not written it. */
async function isForeign(path: string): Promise<boolean> {
  const stats = await onFile(path, async () => lstatIfAny(path)).catch(() => null)
  const uid = process.geteuid!()
  return stats !== null && uid !== 0 && stats.uid !== uid
}

/** Null: the file must not exist. */
function contentOf(
  { format, template }: FileConfig,
  { token, use, now }: { token: Token; use: TokenUse; now: Instant },
): string | null {
  const { accessToken, generation, fingerprint, baseUrl, expiresAtMs, received } = token
  if (format === 'absent') return null
  // The shell knows no other header.
  if (format === 'front') return isDeepStrictEqual(use, STANDARD_USE) ? shellLine(token, now) : null
  const expiresAt = formatInstant(expiresAtMs, received)
  const obtainedAt = formatInstant(received.bootMs, received)
  if (format === 'template')
    return renderTemplate(template ?? '', { accessToken, expiresAt, obtainedAt, fingerprint, baseUrl })
  return textOf[format]({ accessToken, ...use, expiresAt, obtainedAt, generation })
}

/**
 * In whole seconds of /proc/uptime, both rounded down: the reader compares its own seconds rounded down, so it never
 * takes an expired token for a good one. A stale token has no line: its readers ask the daemon.
 */
function shellLine({ accessToken, expiresAtMs, received }: Token, now: Instant): string | null {
  const until = Math.floor(expiresAtMs / 1000)
  if (now.bootMs >= until * 1000) return null
  return `${Math.floor(received.bootMs / 1000)} ${until} ${accessToken}\n`
}

/** `written-files.json` in the state directory: paths of token files that exist, for the removal of the package. */
function createWrittenFiles(stateDirectory: string, log: Log) {
  const failure = { sentence: 'Cannot keep the list of token files', event: 'state-file-error' }
  const file = createOwnFile(join(stateDirectory, 'written-files.json'), { log, failure })
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
