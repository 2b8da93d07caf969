// A fleet of real daemons that share one token through a real redis-server, and the service that they ask.
import { mkdirSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'
import type { TLSSocket } from 'node:tls'
import { expect, onTestFinished } from 'vitest'
import { createAuthority, createCertificate } from './certificates.ts'
import { alertFile, startDaemon, tokenFile, type Daemon } from './daemon.ts'
import { askOnce } from './ipc-client.ts'
import { freshToken, serviceOf } from './outside.ts'
import type { RedisServer } from './redis.ts'
import { granting, startService, type ScriptedAnswer } from './service.ts'
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
  readonly env?: NodeJS.ProcessEnv
  /** Of this host; without it, a directory of its own in memory. */
  readonly directory?: string
  /** Of another version, instead of this one. */
  readonly program?: readonly string[]
}

/** Starts a daemon as a host of this name. Its directory is kept for `again`. */
export async function startHost(
  name: string,
  { redis: { address }, baseUrl, share = {}, config = {}, env = {}, directory, program }: FleetSettings,
  again?: Daemon,
): Promise<Daemon> {
  const server = 'path' in address ? address.path : `${address.host}:${address.port}`
  const isSocket = 'path' in address
  return startDaemon({
    directory: again?.directory ?? directory ?? join(await tempDirectory('memory'), name),
    baseUrl,
    env,
    ...(program === undefined ? {} : { program }),
    config: {
      request: { timeout: '4s' },
      http: false,
      ...config,
      share: { servers: [server], ...(isSocket ? {} : { tls: false }), host: name, ...share },
    },
  })
}

export function startHosts(count: number, settings: FleetSettings): Promise<Daemon[]> {
  return Promise.all(Array.from({ length: count }, (_, index) => startHost(`host-${index + 1}`, settings)))
}

/** A service that asks for client certificates, and answers by the name in them. */
export async function startKnowingService(lifeSeconds: number) {
  const authority = createAuthority()
  const server = createCertificate(authority, { names: ['localhost'] })
  const asked: string[] = []
  let answerTo = (_name: string): ScriptedAnswer => granting(freshToken(lifeSeconds))
  const tls = { ...server, ca: authority.cert, requestCert: true, rejectUnauthorized: true }
  const service = await startService({
    tls,
    answer(_request, { socket }) {
      const name = String((socket as TLSSocket).getPeerCertificate().subject.CN)
      asked.push(name)
      return answerTo(name)
    },
  })
  onTestFinished(async () => service.stop())
  return {
    url: service.url,
    authority,
    token: (): ScriptedAnswer => granting(freshToken(lifeSeconds)),
    /** The names of the hosts that asked, in turn. */
    asked,
    answer(next: typeof answerTo) {
      answerTo = next
    },
  }
}

/** Starts a host with a certificate of its own, by which such a service knows it. */
export async function startKnownHost(
  name: string,
  {
    service,
    ...settings
  }: { readonly service: Awaited<ReturnType<typeof startKnowingService>> } & Pick<
    FleetSettings,
    'redis' | 'program'
  >,
): Promise<Daemon> {
  const directory = join(await tempDirectory('memory'), name)
  const { cert, key } = createCertificate(service.authority, { names: [name] })
  const caFile = join(directory, 'ca.pem')
  const files = { certFile: join(directory, 'cert.pem'), key: { file: join(directory, 'key.pem') } }
  mkdirSync(directory)
  writeFileSync(files.certFile, cert, { mode: 0o600 })
  writeFileSync(files.key.file, key, { mode: 0o600 })
  writeFileSync(caFile, service.authority.cert)
  const request = { timeout: '4s', caFile, clientCertificate: files }
  return startHost(name, {
    ...settings,
    baseUrl: service.url,
    directory,
    share: { timeout: '5s' },
    config: { request },
  })
}

/**
 * The service answers the first host like this, and its operator asks: the others lose nothing while they get so
 * many tokens. Then it answers as before, and all have one token. Resolves with the requests of the first host.
 */
export async function spareOthers(
  hosts: readonly Daemon[],
  {
    service,
    name,
    bad,
    rotations,
  }: {
    readonly service: Awaited<ReturnType<typeof startKnowingService>>
    /** Of the first host. */
    readonly name: string
    readonly bad: ScriptedAnswer
    readonly rotations: number
  },
): Promise<number> {
  const [first, ...others] = hosts as [Daemon, ...Daemon[]]
  const { length } = service.asked
  const askedBy = (isFirst: boolean): number =>
    service.asked.slice(length).filter((asker) => (asker === name) === isFirst).length
  service.answer((asker) => (asker === name ? bad : service.token()))
  const [outcome] = await askAll([first], 'refresh.request')
  expect(outcome).toMatchObject({ outcome: expect.not.stringMatching('ok') })
  const without = new Set<string>()
  await expectUntil(
    `${rotations} rotations`,
    () => {
      for (const host of others) if (tokenFile(host) === undefined) without.add(host.directory)
      return askedBy(false) >= rotations
    },
    { withinMs: 60_000 },
  )
  expect([...without]).toEqual([])
  expect(others.filter((host) => alertFile(host) !== undefined)).toEqual([])
  // It has the tokens of the others.
  await expectUntil('no alert on the first host', () => alertFile(first) === undefined)
  const asked = askedBy(true)
  service.answer(service.token)
  await askAll(others.slice(0, 1), 'refresh.request')
  await oneToken(hosts)
  return asked
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
