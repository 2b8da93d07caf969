// A source for tests: the parts of a configuration that it takes, and what is between it and the service.
import dns from 'node:dns'
import { writeFileSync } from 'node:fs'
import http from 'node:http'
import https from 'node:https'
import net, { type Server, type Socket } from 'node:net'
import { join } from 'node:path'
import { onTestFinished, vi, type MockInstance } from 'vitest'
import type { PairConfig, RequestConfig, ServiceConfig, SignedAssertion } from '../../src/config/config.ts'
import { createSystemClock } from '../../src/lib/clock.ts'
import { Secret } from '../../src/lib/secret.ts'
import { createFetchToken, type FetchTokenOptions } from '../../src/source/fetch-token.ts'
import type { ServiceOutcome } from '../../src/token/outcome.ts'
import { listening } from './listening.ts'
import { tempDirectory } from './temp-directory.ts'
import { expectUntil } from './until.ts'

export const KEY = 'key of/the+account'
export const SECRET = 'S3cret/+öf=the"account'

/** Parts of a configuration that differ from the defaults. */
export interface Change extends Partial<Omit<FetchTokenOptions, 'service' | 'pair' | 'request'>> {
  readonly service?: Partial<ServiceConfig>
  readonly pair?: Partial<PairConfig>
  readonly request?: Partial<RequestConfig>
}

/** The service of the interface description, and its pair. */
export function partsFor(baseUrl: string, { service, pair, request }: Change = {}) {
  return {
    service: {
      baseUrl,
      tokenUrl: `${baseUrl}/token/external/jwt`,
      lifetime: null,
      refusals: [
        { status: 500, says: 'Your account is not active', in: ['detail'], reason: 'account-inactive' },
        { status: 404, says: 'Account not found', in: ['detail'], reason: 'account-not-found' },
      ],
      refusedBy: [401],
      use: { header: 'Authorization', prefix: 'Bearer ' },
      ...service,
    } satisfies ServiceConfig,
    pair: {
      apiKey: new Secret(KEY),
      apiSecret: new Secret(SECRET),
      clientCertificate: null,
      send: 'json',
      names: { apiKey: 'apiKey', apiSecret: 'apiSecret' },
      parameters: {},
      headers: {},
      token: ['accessToken'],
      assertion: null,
      ends: { credentialsMs: null, certificate: null },
      files: [],
      ...pair,
    } satisfies PairConfig,
    request: {
      timeoutMs: 10_000,
      connectTimeoutMs: 5_000,
      ca: null,
      isBuiltInTrusted: true,
      proxy: null,
      ...request,
    } satisfies RequestConfig,
  }
}

/** The part of a pair by which its key signs an assertion. */
export function signing(key: Secret, change: Partial<SignedAssertion> = {}) {
  const assertion: SignedAssertion = {
    kind: 'signed',
    key,
    algorithm: 'ES256',
    keyId: null,
    audience: null,
    lifetimeMs: 60_000,
    as: 'client',
    claims: {},
    header: {},
    ...change,
  }
  return { apiSecret: null, send: 'assertion', assertion } as const
}

/** The same of a pair whose assertion is ready-made; `fetchFrom` has its file. */
export function readyMade(change: object = {}, apiKey: string | null = null): Partial<PairConfig> {
  return {
    apiKey: apiKey === null ? null : new Secret(apiKey),
    apiSecret: null,
    send: 'assertion',
    assertion: { kind: 'ready', file: '/unread', as: 'client', type: null, ...change },
  }
}

export function fetcherFor(baseUrl: string, change: Change = {}) {
  const given = { env: {}, clock: createSystemClock(), secrets: () => [], ...change }
  return createFetchToken({ ...given, ...partsFor(baseUrl, change) })
}

/** Asks once; where the pair's assertion is ready-made, its file holds this one. */
export async function fetchFrom(
  baseUrl: string,
  change: Change = {},
  assertion = '',
): Promise<ServiceOutcome> {
  const { pair } = change
  const file = join(await tempDirectory(), 'assertion')
  writeFileSync(file, assertion)
  const given = pair?.assertion?.kind === 'ready' ? { ...pair, assertion: { ...pair.assertion, file } } : pair
  return fetcherFor(baseUrl, { ...change, ...(given && { pair: given }) })(new AbortController().signal)
}

/** Listens on loopback until the test ends, which fails where its connections are not over then. */
async function started(server: Server) {
  const sockets = new Set<Socket>()
  server.on('connection', (socket: Socket) => {
    sockets.add(socket)
    socket.on('error', () => socket.destroy()).on('close', () => sockets.delete(socket))
  })
  const port = await listening(server)
  onTestFinished(async () => {
    await expectUntil(`the end of the connections of ${port}`, () => sockets.size === 0).finally(() =>
      sockets.forEach((socket) => socket.destroy()),
    )
  })
  return port
}

/** A bare TCP server; the listener has the whole connection. */
export function listen(listener: (socket: Socket) => void): Promise<number> {
  return started(net.createServer(listener))
}

/** A proxy that does so with each connection for a target: by default it is the way there. */
export async function startProxy(
  onConnect: (target: string, socket: Socket) => void = tunnel,
  tls?: { cert: string; key: string },
) {
  /** The targets, and the logins: in base64. */
  const seen: string[] = []
  const logins: (string | undefined)[] = []
  const proxy = tls ? https.createServer(tls) : http.createServer()
  // A tunnel that one side has ended.
  proxy.on('connection', (socket: Socket) => socket.on('end', () => socket.end()))
  proxy.on('connect', ({ url = '', headers }: http.IncomingMessage, socket: Socket) => {
    seen.push(url)
    logins.push(headers['proxy-authorization']?.replace('Basic ', ''))
    socket.on('error', () => socket.destroy()).resume()
    onConnect(url, socket)
  })
  return { address: `127.0.0.1:${await started(proxy)}`, seen, logins }
}

/** Has the proxy's connection go on to the target. */
export function tunnel(target: string, socket: Socket): void {
  const [host, port] = target.split(':')
  const onward = net.connect(Number(port), host, () => {
    socket.write('HTTP/1.1 200 Connection established\r\n\r\n')
    onward.pipe(socket).pipe(onward)
  })
  onward.on('error', () => socket.destroy()).on('close', () => socket.destroy())
  socket.on('close', () => onward.destroy())
}

/** Every name has these IPv4 addresses until the test ends. */
export function nameHas(...addresses: readonly string[]): void {
  const lookup = vi.spyOn(dns, 'lookup') as unknown as MockInstance<(...given: unknown[]) => void>
  lookup.mockImplementation((_name, _options, callback) => {
    const found = addresses.map((address) => ({ address, family: 4 }))
    ;(callback as (error: null, found: object) => void)(null, found)
  })
  onTestFinished(() => lookup.mockRestore())
}
