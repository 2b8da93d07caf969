// Daemons in a directory of the test's, the service that they ask, and the command line that asks them.
import { beforeEach } from 'vitest'
import { startDaemon, type Daemon, type DaemonOptions } from './daemon.ts'
import { jwtOf } from './jwt.ts'
import { freshToken, serviceOf } from './outside.ts'
import { runCli, type Ended } from './run-cli.ts'
import { granting, type Answer } from './service.ts'
import { tempDirectory } from './temp-directory.ts'

/** To be called outside of tests: each of them gets a directory and a service. */
export function useDaemons(where: 'memory' | 'anywhere' = 'memory') {
  /** Every token that the service has given. */
  const given: string[] = []
  /** The answer of the service with its next token; that of a test sets another with `service.answer`. */
  const grant = (lifeS?: number): ReturnType<typeof granting> => {
    given.push(freshToken(lifeS))
    return granting(given.at(-1)!)
  }
  const start = (config: object = {}, options: Partial<DaemonOptions> = {}): Daemon =>
    startDaemon({ directory: world.directory, baseUrl: world.service.url, config, ...options })
  const world = {
    directory: '',
    service: undefined as unknown as Awaited<ReturnType<typeof serviceOf>>,
    given,
    grant,
    start,
    /** The same, once it listens. */
    started: async (config?: object, options?: Partial<DaemonOptions>): Promise<Daemon> => {
      const daemon = start(config, options)
      await daemon.listening()
      return daemon
    },
  }
  beforeEach(async () => {
    given.length = 0
    world.directory = await tempDirectory(where)
    world.service = await serviceOf(() => grant())
  })
  return world
}

export type CommandWorld = Awaited<ReturnType<typeof commandWorld>>

/** A token of the test's that lives an hour; another number is another token. */
export function hourToken(number = 1): string {
  const iat = Math.floor(Date.now() / 1_000)
  return jwtOf({ iat, exp: iat + 3_600 }, number)
}

/** The daemon listens when this resolves; whether it has a token depends on the answer. */
export async function commandWorld({
  answer = granting(hourToken()),
  config = {},
}: { answer?: Answer; config?: object } = {}) {
  const directory = await tempDirectory('memory')
  const service = await serviceOf(answer)
  const again = async (): Promise<Daemon> => {
    const started = startDaemon({ directory, baseUrl: service.url, config })
    await started.listening()
    return started
  }
  const daemon = await again()
  return {
    service,
    daemon,
    directory,
    /** Another daemon in the same directory, after the first has ended. */
    again,
    /** Runs the command line for this daemon. */
    cli: (args: readonly string[], given: { input?: string; env?: NodeJS.ProcessEnv } = {}): Promise<Ended> =>
      runCli(args, { ...given, env: { KYC_TOKEND_SOCKET: daemon.ipcPath, ...given.env } }),
  }
}
