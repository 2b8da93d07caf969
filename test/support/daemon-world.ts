// Daemons in a directory of the test's, and the service that they ask.
import { beforeEach } from 'vitest'
import { startDaemon, type Daemon, type DaemonOptions } from './daemon.ts'
import { freshToken, serviceOf } from './outside.ts'
import { granting } from './service.ts'
import { tempDirectory } from './temp-directory.ts'

/** To be called outside of tests: each of them gets a directory and a service. */
export function useDaemons(where?: 'memory') {
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
