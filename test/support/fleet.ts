// A fleet of real daemons that share one token through a real redis-server, and the service that they ask.
import { join } from 'node:path'
import { startDaemon, tokenFile, type Daemon } from './daemon.ts'
import { askOnce } from './ipc-client.ts'
import { freshToken, serviceOf } from './outside.ts'
import type { RedisServer } from './redis.ts'
import { granting, type ScriptedAnswer } from './service.ts'
import { tempDirectory } from './temp-directory.ts'
import { expectUntil } from './until.ts'

/** A service whose tokens live so long. */
export async function startTokenService(lifeSeconds: number) {
  const token = (): ScriptedAnswer => granting(freshToken(lifeSeconds))
  return Object.assign(await serviceOf(token), { token })
}

export interface FleetSettings {
  readonly redis: Pick<RedisServer, 'address'>
  readonly baseUrl: string
  readonly share?: object
  readonly config?: object
}

/** Starts a daemon as a host of this name. Its directory is kept for `again`. */
export async function startHost(
  name: string,
  { redis: { address }, baseUrl, share = {}, config = {} }: FleetSettings,
  again?: Daemon,
): Promise<Daemon> {
  const server = 'path' in address ? address.path : `${address.host}:${address.port}`
  const isSocket = 'path' in address
  return startDaemon({
    directory: again?.directory ?? join(await tempDirectory('memory'), name),
    baseUrl,
    config: {
      request: { timeout: '4s' },
      http: false,
      ...config,
      share: { servers: [server], ...(isSocket ? {} : { tls: false }), ...share },
    },
  })
}

export function startHosts(count: number, settings: FleetSettings): Promise<Daemon[]> {
  return Promise.all(Array.from({ length: count }, (_, index) => startHost(`host-${index + 1}`, settings)))
}

/** The tokens that are in use; undefined: a host without one. */
export function tokensOf(hosts: readonly Daemon[]): (string | undefined)[] {
  return [...new Set(hosts.map(tokenFile))]
}

/** Resolves with the token when all hosts have the same. */
export function oneToken(hosts: readonly Daemon[], { withinMs = 30_000, not = '' } = {}): Promise<string> {
  return expectUntil(
    'one token on every host',
    () => {
      const [token, ...others] = tokensOf(hosts)
      return others.length === 0 && token !== undefined && token !== not && token
    },
    { withinMs },
  )
}

export function recordsOf(hosts: readonly Daemon[], event: string): ReturnType<Daemon['log']> {
  return hosts.flatMap((host) => host.records(event))
}

/** Sends the same request to every host, and gives their answers. */
export async function askAll(
  hosts: readonly Daemon[],
  type: string,
  data: (host: Daemon) => object = () => ({}),
): Promise<Record<string, unknown>[]> {
  return Promise.all(hosts.map(async (host) => (await askOnce(host.ipcPath, type, data(host)))?.data ?? {}))
}
