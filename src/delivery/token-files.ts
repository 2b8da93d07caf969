// The token files: every entry of `tokenFiles` holds the token as long as it may be used, and is not there otherwise.
import type { TokenFileConfig, TokenFileFormat } from '../config/config.ts'
import { tellInstant, tellingBy, type Instant } from '../lib/clock.ts'
import type { Log } from '../lib/log.ts'
import type { StatusResult } from '../protocol.ts'
import type { Keeper } from '../token/keeper.ts'
import { usableToken } from '../token/state.ts'
import type { Token } from '../token/token.ts'
import { createDeliveredFile, type DeliveredFile, type FileCounts } from './delivered-file.ts'

export interface TokenFiles {
  /** Clears what a crash left, then keeps the files until the signal is aborted; they are left for the next start. */
  run(signal: AbortSignal): Promise<void>
  status(): StatusResult['files']
  /** Of all files together, since the start. */
  counts(): FileCounts
}

export function createTokenFiles(options: {
  files: readonly TokenFileConfig[]
  keeper: Pick<Keeper, 'state' | 'now' | 'onEvent'>
  log: Log
}): TokenFiles {
  const { keeper, log } = options
  const entries = options.files.map((config) => ({
    config,
    file: createDeliveredFile(config, {
      wanted: () => {
        const now = keeper.now()
        const token = usableToken(keeper.state(), now)
        return token === null ? null : contentOf[config.format](token, now)
      },
      now: () => keeper.now(),
      log,
    }),
  }))

  return {
    run: (signal) =>
      keepFiles(
        entries.map(({ file }) => file),
        { keeper, signal },
      ),
    status: () =>
      entries.map(({ config, file }) => ({
        path: config.path,
        format: config.format,
        ok: file.error() === null,
        error: file.error(),
        writtenAt: file.writtenAt()?.toISOString() ?? null,
        repairs: file.counts().repairs,
      })),
    counts() {
      const sum = { writes: 0, repairs: 0, errors: 0 }
      for (const { file } of entries) {
        const { writes, repairs, errors } = file.counts()
        sum.writes += writes
        sum.repairs += repairs
        sum.errors += errors
      }
      return sum
    },
  }
}

/** Removes the files of entries that a reload took out of the configuration: nobody would keep them from here on. */
export async function removeTokenFiles(
  files: readonly TokenFileConfig[],
  { now, log }: { now: () => Instant; log: Log },
): Promise<void> {
  const wanted = (): null => null
  await Promise.all(files.map(async (file) => createDeliveredFile(file, { wanted, now, log }).look()))
}

/** Looks at the files at each event of the keeper until the signal is aborted, and once more then. */
export async function keepFiles(
  files: readonly DeliveredFile[],
  { keeper, signal }: { keeper: Pick<Keeper, 'onEvent'>; signal: AbortSignal },
): Promise<void> {
  const lookAll = async (): Promise<unknown> => Promise.all(files.map(async (file) => file.look()))
  await Promise.all(files.map(async (file) => file.begin()))
  let endListening = (): void => undefined
  await new Promise<void>((resolve, reject) => {
    const look = (): void => {
      lookAll().catch(reject)
    }
    const stop = (): void => {
      resolve()
    }
    endListening = keeper.onEvent((event) => {
      if (event.type !== 'attempted') look()
    })
    signal.addEventListener('abort', stop, { once: true })
    look()
    if (signal.aborted) stop()
  }).finally(() => {
    endListening()
  })
  await lookAll()
}

const contentOf: Record<TokenFileFormat, (token: Token, now: Instant) => string> = {
  raw: ({ accessToken }) => accessToken,
  header: ({ accessToken }) => `Authorization: Bearer ${accessToken}\n`,
  env: ({ accessToken }) => `KYC_ACCESS_TOKEN=${accessToken}\n`,
  json({ accessToken, generation, expiresAtMs, received }, now) {
    const known = tellingBy(received, now)
    const expiresAt = tellInstant(expiresAtMs, known)
    const obtainedAt = tellInstant(received.bootMs, known)
    return `${JSON.stringify({ accessToken, expiresAt, obtainedAt, generation })}\n`
  },
}
