// The token files: every entry of `tokenFiles` holds the token while it may be used, and is absent otherwise.
import { join } from 'node:path'
import { isDeepStrictEqual } from 'node:util'
import type { Config, TokenFileConfig, TokenFileFormat } from '../../config/config.ts'
import { raceAbort } from '../../lib/tasks.ts'
import { lstatIfAny, onFile } from '../../lib/atomic-file.ts'
import { formatInstant, type Instant } from '../../lib/clock.ts'
import type { Log } from '../../lib/log.ts'
import { parseJson } from '../../lib/input.ts'
import { createManagedFile, createOwnFile, type ManagedFile } from '../../lib/managed-file.ts'
import { STOP_WAIT_MS } from '../../lib/in-directory.ts'
import { needsQuotes, renderTemplate } from '../../lib/template.ts'
import { STANDARD_USE, type StatusResult, type TokenUse } from '../../protocol.ts'
import type { Keeper } from '../../token/keeper.ts'
import { usableToken } from '../../token/state.ts'
import type { Token } from '../../token/token.ts'
import { isOpen } from '../peers.ts'
import { textOf } from '../token-format.ts'

export type TokenFilesConfig = Pick<Config, 'tokenFiles' | 'runtimeDirectory' | 'stateDirectory' | 'ipc'>

/** An entry of `tokenFiles`, or the file for the shell, with the format `absent` if it must not exist. */
type FileConfig = Omit<TokenFileConfig, 'format'> & { readonly format: TokenFileFormat | 'front' | 'absent' }
interface Entry {
  readonly config: FileConfig
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
  let entries: Entry[] = filesOf(options.config).map(createEntry)
  const written = createWrittenFiles(options.config.stateDirectory, log)
  /** Files of former configurations that are still to be removed, by path. */
  const former = new Map<string, ManagedFile>()
  /** Templates of which it was said that the token may need quotes. */
  const warned = new Set<string>()
  let isStopped = false

  function createEntry(config: FileConfig): Entry {
    const desired = (): string | null => {
      const isListed = entries.some((entry) => entry.config === config)
      // Without a daemon the shell must not give a token.
      if (!isListed || (isStopped && config.format === 'front')) return null
      const now = keeper.now()
      const state = keeper.state()
      const token = usableToken(state, now)
      if (token !== null && config.format === 'template') warnOfQuotes(config.path, token.accessToken)
      return token && contentOf(config, { token, use: state.use, now })
    }
    const own = isTokenFile(config) ? { counts } : {}
    return { config, file: createManagedFile(config, { desired, log, isRevocable: true, ...own }) }
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

  const isConfigured = (path: string): boolean => entries.some((entry) => entry.config.path === path)

  async function reconcile(): Promise<void> {
    await Promise.all([...entries.map(reconcileEntry), removeFormer(), written.reconcile()])
  }

  async function reconcileEntry({ config, file }: Entry): Promise<void> {
    await file.reconcile()
    if (isTokenFile(config) && file.isPresent() && file.writtenAt() !== null) await written.add(config.path)
  }

  async function removeFormer(): Promise<void> {
    for (const [path, file] of former) {
      if (!isConfigured(path)) await file.reconcile()
      const isGone = file.error() === null && !file.isPresent()
      if (!isConfigured(path) && !isGone) continue
      former.delete(path)
      if (!isConfigured(path)) await written.remove(path)
    }
  }

  /** Finds files of a former run that are not configured any more: a setting may have changed while the daemon was stopped. */
  async function readFormer(): Promise<void> {
    for (const path of (await written.begin()).filter((listed) => !isConfigured(listed))) {
      if (await isForeign(path)) await written.remove(path)
      else former.set(path, createManagedFile({ path, mode: 0o600 }, { desired: () => null, log, counts }))
    }
    await reconcile()
  }

  return {
    /** Removes leftovers of a crash, and maintains the files until the signal is aborted. Then only the shell's file is removed. */
    async run(signal: AbortSignal): Promise<void> {
      await Promise.all(entries.map(async ({ file }) => file.begin()))
      const failed = Promise.withResolvers<never>()
      const list = readFormer().catch(failed.reject)
      const unsubscribe = keeper.onEvent(({ type }) => {
        if (type !== 'attempted') reconcile().catch(failed.reject)
      })
      if (!signal.aborted) reconcile().catch(failed.reject)
      await raceAbort(failed.promise, signal).finally(unsubscribe)
      isStopped = true
      await raceAbort(Promise.all([list, reconcile()]), AbortSignal.timeout(STOP_WAIT_MS))
    },
    /** Uses other entries from now on. Files of entries that are gone are removed; an entry that did not change stays. */
    async reconfigure(config: TokenFilesConfig): Promise<void> {
      const replaced = entries
      entries = filesOf(config).map(
        (next) => replaced.find((entry) => isDeepStrictEqual(entry.config, next)) ?? createEntry(next),
      )
      for (const { config: gone, file } of replaced) if (!isConfigured(gone.path)) former.set(gone.path, file)
      await reconcile()
    },
    status: (): StatusResult['files'] =>
      entries
        .filter(({ config }) => isTokenFile(config))
        .map(({ config, file }) => ({
          path: config.path,
          format: config.format,
          ok: file.error() === null,
          error: file.error(),
          present: file.isPresent(),
          writtenAt: file.writtenAt()?.toISOString() ?? null,
          repairs: file.repairs(),
        })),
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
