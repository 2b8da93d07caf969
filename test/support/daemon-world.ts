// Daemons that run one after the other in a directory, and a service that gives another token each time.
import { beforeEach } from 'vitest'
import { startDaemon, type Daemon } from './daemon.ts'
import { freshToken, serviceOf } from './outside.ts'
import { granting, type Service } from './service.ts'
import { tempDirectory } from './temp-directory.ts'

export interface DaemonWorld {
  readonly service: Service
  readonly directory: string
  /** All tokens that the service has given. */
  readonly given: readonly string[]
  /** The answer of the service with its next token. */
  readonly grant: () => ReturnType<typeof granting>
  readonly start: (config?: object) => Daemon
  /** The same, once it listens. */
  readonly started: (config?: object) => Promise<Daemon>
}

/** To be called outside of tests: each of them gets a directory and a service. */
export function useDaemons(): DaemonWorld {
  let service: Service
  let directory: string
  let given: string[]
  const grant: DaemonWorld['grant'] = () => {
    const token = freshToken()
    given.push(token)
    return granting(token)
  }
  const start: DaemonWorld['start'] = (config = {}) => startDaemon({ directory, baseUrl: service.url, config })
  beforeEach(async () => {
    given = []
    directory = await tempDirectory()
    service = await serviceOf(grant)
  })
  return {
    get service() {
      return service
    },
    get directory() {
      return directory
    },
    get given() {
      return given
    },
    grant,
    start,
    async started(config) {
      const daemon = start(config)
      await daemon.listening()
      return daemon
    },
  }
}
