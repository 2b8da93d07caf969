// The token files: every entry of `tokenFiles` holds the token while it may be used, and is absent otherwise.
import { isDeepStrictEqual } from 'node:util'
import type { Config, TokenFileConfig } from '../../config/config.ts'
import { raceAbort } from '../../lib/abort.ts'
import { formatInstant, stableClockFor, type Instant } from '../../lib/clock.ts'
import type { Log } from '../../lib/log.ts'
import { createManagedFile, type FileCounts, type ManagedFile } from '../../lib/managed-file.ts'
import { STOP_WAIT_MS } from '../../lib/disk-queue.ts'
import { renderTemplate } from '../../lib/template.ts'
import type { StatusResult } from '../../protocol.ts'
import type { Keeper } from '../../token/keeper.ts'
import { usableToken } from '../../token/state.ts'
import type { Token } from '../../token/token.ts'
import { createShellTokenFile, type ShellTokenFile } from './shell-token-file.ts'
import { createWrittenFiles } from './written-files.ts'

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
  let shell = shellFileFor(options.config)
  const writtenFiles = createWrittenFiles(options.config.stateDirectory, log)
  let isStopped = false
  let past: FileCounts = { writes: 0, repairs: 0, errors: 0 }

  function createEntry(config: TokenFileConfig): Entry {
    const desired = (): string | null => {
      const now = keeper.now()
      const token = usableToken(keeper.state(), now)
      return token === null || !entries.some((entry) => entry.config === config)
        ? null
        : contentOf(config, { token, now })
    }
    return { config, file: createManagedFile(config, { desired, log }) }
  }

  function shellFileFor(config: TokenFilesConfig): ShellTokenFile {
    return createShellTokenFile({ ...config, files: config.tokenFiles, keeper, log })
  }

  async function reconcile(): Promise<void> {
    await Promise.all([...entries.map(reconcileEntry), shell.reconcile()])
    await writtenFiles.reconcile()
  }

  async function reconcileEntry({ config, file }: Entry): Promise<void> {
    await file.reconcile()
    if (file.isPresent() && file.writtenAt() !== null) writtenFiles.add(config.path)
    else if (!entries.some((entry) => entry.config.path === config.path)) writtenFiles.remove(config.path)
  }

  async function run(signal: AbortSignal): Promise<void> {
    await Promise.all([...entries.map(async ({ file }) => file.begin()), shell.begin()])
    const list = writtenFiles.begin()
    const fault = Promise.withResolvers<never>()
    const unsubscribe = keeper.onEvent(({ type }) => {
      if (type !== 'attempted') reconcile().catch(fault.reject)
    })
    if (!signal.aborted) reconcile().catch(fault.reject)
    await raceAbort(fault.promise, signal).finally(unsubscribe)
    isStopped = true
    shell.hide()
    await raceAbort(Promise.all([list, reconcile()]), AbortSignal.timeout(STOP_WAIT_MS))
  }

  /** An entry that did not change goes on with what it knows of its file. */
  async function reconfigure(config: TokenFilesConfig): Promise<void> {
    const former = entries
    entries = config.tokenFiles.map(
      (next) => former.find((entry) => isDeepStrictEqual(entry.config, next)) ?? createEntry(next),
    )
    const paths = new Set(entries.map((entry) => entry.config.path))
    const removed = former.filter((entry) => !paths.has(entry.config.path))
    shell.hide()
    await Promise.all([...removed.map(reconcileEntry), shell.reconcile()])
    for (const { file } of former.filter((entry) => !entries.includes(entry))) past = sum(past, file.counts())
    shell = shellFileFor(config)
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
    counts: () => entries.reduce((total, { file }) => sum(total, file.counts()), past),
  }
}

function sum(one: FileCounts, other: FileCounts): FileCounts {
  return {
    writes: one.writes + other.writes,
    repairs: one.repairs + other.repairs,
    errors: one.errors + other.errors,
  }
}

function contentOf(
  { format, template }: TokenFileConfig,
  { token, now }: { token: Token; now: Instant },
): string {
  const { accessToken, generation, fingerprint, baseUrl, expiresAtMs, received } = token
  if (format === 'raw') return accessToken
  if (format === 'header') return `Authorization: Bearer ${accessToken}\n`
  if (format === 'env') return `KYC_ACCESS_TOKEN=${accessToken}\n`
  const known = stableClockFor(received, now)
  const expiresAt = formatInstant(expiresAtMs, known)
  const obtainedAt = formatInstant(received.bootMs, known)
  if (format === 'json') return `${JSON.stringify({ accessToken, expiresAt, obtainedAt, generation })}\n`
  return renderTemplate(template ?? [], { accessToken, expiresAt, obtainedAt, fingerprint, baseUrl })
}
