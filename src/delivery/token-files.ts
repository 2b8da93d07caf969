// The token files: every entry of `tokenFiles` holds the token while it may be used, and is absent otherwise.
import type { TokenFileConfig } from '../config/config.ts'
import { createManagedFile, type Content, type ManagedFile } from '../files/managed-file.ts'
import type { RemedyOf } from '../host/remedy.ts'
import { formatInstant } from '../lib/clock.ts'
import type { Log } from '../lib/log.ts'
import { raceAbort } from '../lib/tasks.ts'
import type { StatusResult, TokenResult } from '../protocol.ts'
import type { Keeper } from '../token/keeper.ts'
import { shownClock, usableToken, usableUntilMs } from '../token/selectors.ts'
import type { TokenState } from '../token/state.ts'
import type { Token } from '../token/token.ts'

/** Files that are worked on at once: a disk that hangs leaves threads to all else (of 16). */
const LANES = 6
/** The longest time for which a stop waits for a disk. */
const STOP_WAIT_MS = 1_000

export function createTokenFiles(options: {
  config: readonly TokenFileConfig[]
  keeper: Pick<Keeper, 'state' | 'now' | 'onEvent'>
  log: Log
  remedyOf: RemedyOf
}) {
  const { keeper, log, remedyOf } = options
  /** Of all token files, also former ones. */
  const counts = { writes: 0, repairs: 0, errors: 0 }
  /** By path. */
  let configs = byPath(options.config)
  /** By path, also those that are no longer configured and not removed yet. */
  const files = new Map<string, ManagedFile>()

  function fileAt(path: string): ManagedFile {
    const desired = (): Content | null => desiredOf(configs.get(path))
    const file = files.get(path) ?? createManagedFile(path, { desired, log, counts })
    files.set(path, file)
    return file
  }

  function desiredOf(config: TokenFileConfig | undefined): Content | null {
    const state = keeper.state()
    const token = usableToken(state, keeper.now())
    if (config === undefined || token === null) return null
    // In a file that cannot be written it may stay as long as it is good.
    const mayStay = (): boolean =>
      keeper.state().service.id === state.service.id &&
      keeper.now().bootMs < usableUntilMs(keeper.state(), keeper.now(), token)
    return { text: contentOf(config, state, token), attributes: config, mayStay }
  }

  async function reconcile(): Promise<void> {
    const paths = [...new Set([...configs.keys(), ...files.keys()])]
    const lanes = Array.from({ length: LANES }, (_, lane) => paths.filter((_path, at) => at % LANES === lane))
    await Promise.all(lanes.map(reconcileInTurn))
  }

  /** Ends at a file whose disk hangs, which holds a thread. */
  async function reconcileInTurn(paths: readonly string[]): Promise<void> {
    for (const path of paths) {
      const file = fileAt(path)
      await file.reconcile()
      const error = file.error()
      if (error?.kind === 'stalled') return
      if (!configs.has(path) && error === null && file.status().writtenAt === null) files.delete(path)
    }
  }

  return {
    /** Maintains the files until the signal is aborted. */
    async run(signal: AbortSignal): Promise<void> {
      const failed = Promise.withResolvers<never>()
      const begin = (): void => void reconcile().catch(failed.reject)
      const endListening = keeper.onEvent(({ type }) => type !== 'attempted' && begin())
      if (!signal.aborted) begin()
      await raceAbort(failed.promise, signal).finally(endListening)
      await raceAbort(reconcile(), AbortSignal.timeout(STOP_WAIT_MS))
    },
    /** Uses other entries from now on. Files of entries that are gone are removed. */
    async reconfigure(config: readonly TokenFileConfig[]): Promise<void> {
      configs = byPath(config)
      await reconcile()
    },
    status: (): StatusResult['files'] =>
      [...configs.values()].map((config) => {
        const file = fileAt(config.path)
        const error = file.error()
        const { writtenAt, repairs } = file.status()
        return {
          path: config.path,
          format: config.format,
          ok: error === null,
          error: error && remedyOf(error),
          present: writtenAt !== null,
          writtenAt: writtenAt?.toISOString() ?? null,
          repairs,
        }
      }),
    /** Sums over all token files, since the start. */
    counts: () => ({ ...counts }),
  }
}

const byPath = (configs: readonly TokenFileConfig[]): ReadonlyMap<string, TokenFileConfig> =>
  new Map(configs.map((config) => [config.path, config]))

function contentOf(
  { format, template }: TokenFileConfig,
  state: TokenState,
  { accessToken, expiresAtMs, receivedAtMs }: Token,
): string {
  if (format === 'template') return (template ?? '').replaceAll('{token}', () => accessToken)
  const { generation, service } = state
  const expiresAt = formatInstant(expiresAtMs, shownClock(state))
  const obtainedAt = formatInstant(receivedAtMs, shownClock(state))
  return textOf[format]({ accessToken, ...service.use, expiresAt, obtainedAt, generation })
}

type Fields = Pick<
  TokenResult,
  'accessToken' | 'header' | 'prefix' | 'expiresAt' | 'obtainedAt' | 'generation'
>
/** The characters of a token that need no quotes anywhere: in shells, files of variables, JSON, YAML, SQL. */
const PLAIN = /^[\w.+/=-][\w.~+/=-]*$/
/** The token as text, also for `kyc-tokend token`. `raw` is the token alone; the others are a line. */
export const textOf = {
  raw: ({ accessToken }: Fields) => accessToken,
  header: ({ accessToken, header, prefix }: Fields) => `${header}: ${prefix}${accessToken}\n`,
  // A token has no single quote.
  env: ({ accessToken: token }: Fields) => `KYC_ACCESS_TOKEN=${PLAIN.test(token) ? token : `'${token}'`}\n`,
  json: ({ accessToken, expiresAt, obtainedAt, generation }: Fields) =>
    `${JSON.stringify({ accessToken, expiresAt, obtainedAt, generation })}\n`,
}
