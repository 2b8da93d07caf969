// The token files: every entry of `tokenFiles` holds the token while it may be used, and is absent otherwise.
import { join } from 'node:path'
import { isDeepStrictEqual } from 'node:util'
import type { Config, TokenFileConfig } from '../../config/config.ts'
import { raceAbort } from '../../lib/tasks.ts'
import { lstatIfAny, onFile } from '../../lib/atomic-file.ts'
import { formatInstant } from '../../lib/clock.ts'
import type { Log } from '../../lib/log.ts'
import { createManagedFile, type FileCounts, type ManagedFile } from '../../lib/managed-file.ts'
import { createOwnFile, parseJson } from '../../lib/own-file.ts'
import { STOP_WAIT_MS } from '../../lib/disk-queue.ts'
import { renderTemplate } from '../../lib/template.ts'
import type { StatusResult } from '../../protocol.ts'
import type { Keeper } from '../../token/keeper.ts'
import { usableToken } from '../../token/state.ts'
import type { Token } from '../../token/token.ts'
import { isOpen } from '../peers.ts'

export type TokenFilesConfig = Pick<Config, 'tokenFiles' | 'runtimeDirectory' | 'stateDirectory' | 'ipc'>

export interface TokenFiles {
  /**
   * Removes leftovers of a crash, then keeps the files until the signal is aborted. They stay for the next start; the
   * shell's file goes.
   */
  run(signal: AbortSignal): Promise<void>
  /** Goes on with other entries. Files of entries that are gone are removed. */
  reconfigure(config: TokenFilesConfig): Promise<void>
  status(): StatusResult['files']
  /** Sums over all files, since the start. */
  counts(): FileCounts
}

interface Entry {
  readonly config: TokenFileConfig
  readonly file: ManagedFile
}

export function createTokenFiles(options: {
  config: TokenFilesConfig
  keeper: Pick<Keeper, 'state' | 'now' | 'onEvent'>
  log: Log
}): TokenFiles {
  const { keeper, log } = options
  let entries = options.config.tokenFiles.map(createEntry)
  let shell = createShellTokenFile(options.config, { keeper, log })
  const written = createWrittenFiles(options.config.stateDirectory, log)
  /** Files of former configurations that are still to be removed, by path. */
  const former = new Map<string, ManagedFile>()
  let isStopped = false
  let past: FileCounts = { writes: 0, repairs: 0, errors: 0 }

  function createEntry(config: TokenFileConfig): Entry {
    const desired = (): string | null => {
      const token = usableToken(keeper.state(), keeper.now())
      const isListed = entries.some((entry) => entry.config === config)
      return token === null || !isListed ? null : contentOf(config, token)
    }
    const file = createManagedFile(config, { desired, log, isRevocable: true, isPublic: true })
    return { config, file }
  }

  const isConfigured = (path: string): boolean => entries.some((entry) => entry.config.path === path)

  async function reconcile(): Promise<void> {
    await Promise.all([
      ...entries.map(reconcileEntry),
      removeFormer(),
      shell.reconcile(),
      written.reconcile(),
    ])
  }

  async function reconcileEntry({ config, file }: Entry): Promise<void> {
    await file.reconcile()
    if (file.isPresent() && file.writtenAt() !== null) await written.add(config.path)
  }

  async function removeFormer(): Promise<void> {
    for (const [path, file] of former) {
      if (!isConfigured(path)) await file.reconcile()
      const isGone = file.error() === null && !file.isPresent()
      if (!isConfigured(path) && !isGone) continue
      former.delete(path)
      past = sum(past, file.counts())
      if (!isConfigured(path)) await written.remove(path)
    }
  }

  /** A setting may have been changed while the daemon was stopped. */
  async function readFormer(): Promise<void> {
    for (const path of (await written.begin()).filter((listed) => !isConfigured(listed))) {
      if (await isForeign(path)) await written.remove(path)
      else former.set(path, createManagedFile({ path, mode: 0o600 }, { desired: () => null, log }))
    }
    await reconcile()
  }

  async function run(signal: AbortSignal): Promise<void> {
    await Promise.all([...entries.map(async ({ file }) => file.begin()), shell.begin()])
    const fault = Promise.withResolvers<never>()
    const list = readFormer().catch(fault.reject)
    const unsubscribe = keeper.onEvent(({ type }) => {
      if (type !== 'attempted') reconcile().catch(fault.reject)
    })
    if (!signal.aborted) reconcile().catch(fault.reject)
    await raceAbort(fault.promise, signal).finally(unsubscribe)
    isStopped = true
    shell.hide()
    await raceAbort(Promise.all([list, reconcile()]), AbortSignal.timeout(STOP_WAIT_MS))
  }

  /** An entry that did not change keeps what it knows of its file. */
  async function reconfigure(config: TokenFilesConfig): Promise<void> {
    const replaced = entries
    entries = config.tokenFiles.map(
      (next) => replaced.find((entry) => isDeepStrictEqual(entry.config, next)) ?? createEntry(next),
    )
    for (const entry of replaced.filter((one) => !entries.includes(one))) {
      if (isConfigured(entry.config.path)) past = sum(past, entry.file.counts())
      else former.set(entry.config.path, entry.file)
    }
    shell.hide()
    await Promise.all([removeFormer(), shell.reconcile()])
    shell = createShellTokenFile(config, { keeper, log })
    if (isStopped) shell.hide()
    await reconcile()
  }

  return {
    run,
    reconfigure,
    status: () =>
      entries.map(({ config, file }) => ({
        path: config.path,
        format: config.format,
        ok: file.error() === null,
        error: file.error(),
        present: file.isPresent(),
        writtenAt: file.writtenAt()?.toISOString() ?? null,
        repairs: file.counts().repairs,
      })),
    counts: () =>
      [...entries.map(({ file }) => file), ...former.values()].reduce(
        (total, file) => sum(total, file.counts()),
        past,
      ),
  }
}

/** Reports whether another user made the file: it is not what this daemon once wrote there. */
async function isForeign(path: string): Promise<boolean> {
  const stats = await onFile(path, async () => lstatIfAny(path)).catch(() => null)
  const uid = process.geteuid!()
  return stats !== null && uid !== 0 && stats.uid !== uid
}

function sum(one: FileCounts, other: FileCounts): FileCounts {
  return {
    writes: one.writes + other.writes,
    repairs: one.repairs + other.repairs,
    errors: one.errors + other.errors,
  }
}

function contentOf({ format, template }: TokenFileConfig, token: Token): string {
  const { accessToken, generation, fingerprint, baseUrl, expiresAtMs, received } = token
  if (format === 'raw') return accessToken
  if (format === 'header') return `Authorization: Bearer ${accessToken}\n`
  if (format === 'env') return `KYC_ACCESS_TOKEN=${accessToken}\n`
  const expiresAt = formatInstant(expiresAtMs, received)
  const obtainedAt = formatInstant(received.bootMs, received)
  if (format === 'json') return `${JSON.stringify({ accessToken, expiresAt, obtainedAt, generation })}\n`
  return renderTemplate(template ?? [], { accessToken, expiresAt, obtainedAt, fingerprint, baseUrl })
}

/**
 * `token.front`: one line "VALID_FROM VALID_UNTIL TOKEN" for a shell that prints the token without asking the daemon. It
 * lies beside the default token file (`token` in the runtime directory, `raw`), with its mode and group, and is there only
 * while everybody who may read that file may also ask the daemon (`ipc.allow` is empty).
 */
function createShellTokenFile(
  { tokenFiles, runtimeDirectory, ipc }: TokenFilesConfig,
  { keeper, log }: { keeper: Pick<Keeper, 'state' | 'now'>; log: Log },
) {
  const tokenPath = join(runtimeDirectory, 'token')
  const config = tokenFiles.find(({ path, format }) => path === tokenPath && format === 'raw')
  let isShown = isOpen(ipc.allow) && config !== undefined
  const file = createManagedFile(
    { mode: 0o600, ...config, path: join(runtimeDirectory, 'token.front') },
    { desired: () => (isShown ? shellLine(keeper) : null), log, isRevocable: true },
  )
  return {
    ...file,
    /** From now on the file is to be absent: without a daemon the shell must not answer. */
    hide() {
      isShown = false
    },
  }
}

/**
 * In whole seconds of /proc/uptime, both rounded down: the reader compares its own seconds rounded down, so it never
 * takes an expired token for a good one. A stale token has no line: its readers ask the daemon.
 */
function shellLine(keeper: Pick<Keeper, 'state' | 'now'>): string | null {
  const now = keeper.now()
  const token = usableToken(keeper.state(), now)
  if (token === null) return null
  const until = Math.floor(token.expiresAtMs / 1000)
  if (now.bootMs >= until * 1000) return null
  return `${Math.floor(token.received.bootMs / 1000)} ${until} ${token.accessToken}\n`
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
