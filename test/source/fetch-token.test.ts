import { getEventListeners } from 'node:events'
import http from 'node:http'
import https from 'node:https'
import net, { type AddressInfo, type Socket } from 'node:net'
import { describe, expect, it, onTestFinished } from 'vitest'
import { createSystemClock } from '../../src/lib/clock.ts'
import { standardService } from '../../src/config/service.ts'
import { Secret } from '../../src/lib/secret.ts'
import { createFetchToken, isNamedRefusal, type FetchTokenOptions } from '../../src/source/fetch-token.ts'
import type { FetchOutcome } from '../../src/token/outcome.ts'
import { createAuthority, createCertificate } from '../support/certificates.ts'
import { freePort } from '../support/redis.ts'
import { nameHas, startSilentListener } from '../support/silent-listener.ts'
import { serviceOf } from '../support/outside.ts'
import { accountInactive, granting, type Service } from '../support/service.ts'

const KEY = 'key-of-the-account'
const SECRET = 'S3cret/+öf=the"account'
const DAY_MS = 86_400_000
const PLAIN = 'HTTP/1.1 400 Bad\r\n\r\n'
const authority = createAuthority()

/** A bare TCP server on loopback; the listener has the whole connection. */
async function listen(listener: (socket: Socket) => void): Promise<number> {
  const sockets = new Set<Socket>()
  const server = net.createServer((socket) => {
    sockets.add(socket)
    socket.on('error', () => socket.destroy())
    listener(socket)
  })
  onTestFinished(() => {
    for (const socket of sockets) socket.destroy()
    server.close()
  })
  await new Promise<void>((resolve) => server.listen(0, '127.0.0.1', resolve))
  return (server.address() as AddressInfo).port
}

const LIMITS = { timeoutMs: 10_000, connectTimeoutMs: 5_000 }
type Options = Partial<Omit<FetchTokenOptions, 'request'>> & {
  request?: Partial<FetchTokenOptions['request']>
}

function fetcherFor(baseUrl: string, { request, ...options }: Options = {}) {
  return createFetchToken({
    service: standardService(baseUrl.replace(/\/$/, '')),
    credentials: { apiKey: new Secret(KEY), apiSecret: new Secret(SECRET) },
    env: {},
    clock: createSystemClock(),
    secrets: () => [],
    ...options,
    request: { ...LIMITS, ca: null, isBuiltInTrusted: true, proxy: null, ...request },
  })
}
function fetchFrom(baseUrl: string, options: Options = {}): Promise<FetchOutcome> {
  return fetcherFor(baseUrl, options)(new AbortController().signal)
}
const failed = (reason: string, words: string | RegExp) => ({
  kind: 'transient',
  reason,
  detail: expect.stringMatching(words),
})

/** A proxy that does so with each connection for a target. */
async function startProxy(
  onConnect: (target: string, socket: Socket) => void,
  tls?: { cert: string; key: string },
) {
  const seen: string[] = []
  const headers: http.IncomingHttpHeaders[] = []
  const sockets = new Set<Socket>()
  const onRequest: http.RequestListener = (asked, response) => {
    seen.push(`${asked.method} ${asked.url}`)
    response.end()
  }
  const proxy = tls ? https.createServer(tls, onRequest) : http.createServer(onRequest)
  proxy.on('connection', (socket: Socket) => {
    sockets.add(socket)
    socket.on('error', () => socket.destroy()).on('close', () => sockets.delete(socket))
    socket.on('end', () => socket.end())
  })
  proxy.on('connect', (asked: http.IncomingMessage, socket: Socket) => {
    seen.push(`CONNECT ${asked.url}`)
    headers.push(asked.headers)
    socket.resume()
    onConnect(asked.url ?? '', socket)
  })
  onTestFinished(() => {
    for (const socket of sockets) socket.destroy()
    proxy.close()
  })
  await new Promise<void>((resolve) => proxy.listen(0, '127.0.0.1', resolve))
  return { address: `127.0.0.1:${(proxy.address() as AddressInfo).port}`, seen, headers, sockets }
}

/** Has the proxy's connection go on to the target. */
function tunnel(target: string, socket: Socket): void {
  const [host, port] = target.split(':')
  const onward = net.connect(Number(port), host, () => {
    socket.write('HTTP/1.1 200 Connection established\r\n\r\n')
    onward.pipe(socket).pipe(onward)
  })
  onward.on('error', () => socket.destroy()).on('close', () => socket.resume())
  socket.on('error', () => onward.destroy()).on('close', () => onward.destroy())
}

it('sends the request of the interface description, with the headers that a configuration adds', async () => {
  const service = await serviceOf(granting('token-1'))
  expect(await fetchFrom(`${service.url}/`)).toMatchObject({ kind: 'ok', accessToken: 'token-1' })
  const [request] = service.requests
  expect(request).toMatchObject({
    method: 'POST',
    path: '/token/external/jwt',
    headers: {
      accept: 'application/json',
      'accept-encoding': 'identity',
      'content-type': 'application/json',
      connection: 'close',
      'user-agent': expect.stringMatching(/^kyc-tokend\/\d+\.\d+\.\d+/),
    },
  })
  expect(request?.body).toBe(JSON.stringify({ apiKey: KEY, apiSecret: SECRET }))
  expect(request?.headers['content-length']).toBe(String(Buffer.byteLength(request?.body ?? '')))
  expect(request?.headers).not.toHaveProperty('authorization')
  const headers = { 'User-Agent': 'own', 'X-Client': 'one' }
  await fetchFrom(service.url, { service: { ...standardService(service.url), headers } })
  expect(service.requests[1]?.headers).toMatchObject({ 'user-agent': 'own', 'x-client': 'one' })
})

it.each([
  [true, {}],
  [true, { says: null }],
  [false, { status: 501 }],
  [false, { reason: 'account-not-found' as const }],
  [false, { says: 'account is not active' }],
])('an earlier refusal is named by the description: %s for %j', (isNamed, change) => {
  const { refusals } = standardService()
  const reason = 'account-inactive' as const
  const given = { status: 500, reason, says: 'YOUR account\tis not  active', ...change }
  expect(isNamedRefusal({ ...standardService(), refusals: refusals.toReversed() }, given)).toBe(isNamed)
})

describe('the answer', () => {
  const ok = 'HTTP/1.1 200 OK\r\nContent-Length:'
  const token = '{"accessToken":"abc"}'
  const PROCESSING = 'HTTP/1.1 102 Processing\r\n\r\n'
  const given = { accessToken: 'abc' }
  const invalid = failed('malformed-answer', /not valid HTTP/)
  const longHead = failed('malformed-answer', /head of more than 16 KiB/)
  const raw: [string, string, object][] = [
    ['may come after informational ones', `${PROCESSING.repeat(8)}${ok} 21\r\n\r\n${token}`, given],
    [
      'after more than 8 informational ones is malformed',
      `${PROCESSING.repeat(9)}${ok} 21\r\n\r\n${token}`,
      failed('malformed-answer', /more than 8 informational/),
    ],
    [
      'is malformed where the heads before it have more than 16 KiB together',
      `HTTP/1.1 103 Early Hints\r\nx: ${'x'.repeat(15_000)}\r\n\r\n`.repeat(2),
      longHead,
    ],
    [
      'may have a head of nearly 16 KiB',
      `HTTP/1.1 200 OK\r\nx: ${'x'.repeat(16_000)}\r\nContent-Length: 21\r\n\r\n${token}`,
      given,
    ],
    ['that has not begun after 16 KiB of line breaks is malformed', '\r\n'.repeat(40_000), longHead],
    [
      'that switches protocols is malformed',
      'HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: x\r\n\r\n',
      { reason: 'malformed-answer', status: 101 },
    ],
    ['that is longer than it says is malformed', `${ok} 21\r\n\r\n${token}xyz`, invalid],
    ['that is no HTTP is malformed', '220 mail.example ESMTP\r\n', invalid],
  ]
  it.each(raw)('%s', async (_title, bytes, outcome) => {
    const port = await listen((socket) => socket.once('data', () => socket.end(bytes)))
    expect(await fetchFrom(`http://127.0.0.1:${port}`)).toMatchObject(outcome)
  })

  it('in many small chunks with long extensions is not read to its end', async () => {
    let written = 0
    const port = await listen((socket) => {
      socket.write('HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n')
      const chunk = `1;x=${'x'.repeat(10_000)}\r\n \r\n`
      const more = (): void => {
        while (!socket.destroyed && socket.write(chunk)) written += chunk.length
      }
      socket.on('drain', more)
      more()
    })
    expect(await fetchFrom(`http://127.0.0.1:${port}`)).toMatchObject(
      failed('malformed-answer', /is longer than 64 KiB$/),
    )
    expect(written).toBeLessThan(20_000_000)
  })

  it('that redirects is not followed, and the other host sees nothing', async () => {
    const other = await serviceOf(granting('stolen'))
    for (const status of [301, 302, 303, 307, 308]) {
      const service = await serviceOf({ status, headers: { location: `${other.url}/token/external/jwt` } })
      expect(await fetchFrom(service.url)).toMatchObject(failed('malformed-answer', /was not followed/))
    }
    expect(other.connections.opened).toBe(0)
  })

  it('is announced before the request goes out, and waits for that', async () => {
    const service = await serviceOf(granting('token-1'))
    const go = Promise.withResolvers<void>()
    const outcome = fetcherFor(service.url)(new AbortController().signal, { beforeRequest: () => go.promise })
    await new Promise((resolve) => setImmediate(resolve))
    expect(service.requests).toHaveLength(0)
    go.resolve()
    expect(await outcome).toMatchObject({ kind: 'ok' })
  })

  it('that echoes what the daemon holds does not show it', async () => {
    const service = await serviceOf({ status: 503, json: { detail: 'Down for held-token' } })
    const outcome = await fetchFrom(service.url, { secrets: () => ['held-token'] })
    expect(outcome).toMatchObject({ detail: 'Down for [secret]' })
  })
})

/** Resolves when the service sees no connection any more. */
async function closed(service: Service): Promise<void> {
  await expect.poll(() => service.connections.open).toBe(0)
}

describe('time', () => {
  it.each([
    ['an answer that drips', 'HTTP/1.1 200 OK\r\n\r\n', ' '],
    ['headers that drip', 'HTTP/1.1 200 OK\r\n', 'x: y\r\n'],
    ['a service that accepts and says nothing', '', ''],
  ])('is limited for %s', async (_title, head, drop) => {
    let open = 0
    const port = await listen((socket) => {
      open += 1
      socket.resume().write(head)
      const drip = setInterval(() => socket.write(drop), 5)
      socket.on('close', () => {
        open -= 1
        clearInterval(drip)
      })
    })
    const limits = { timeoutMs: 200, connectTimeoutMs: 50 }
    const outcome = await fetchFrom(`http://127.0.0.1:${port}`, { request: limits })
    const words = `^No whole answer from 127.0.0.1:${port} within 0.2 s \\(request.timeout\\)$`
    expect(outcome).toMatchObject(failed('timeout', words))
    await expect.poll(() => open).toBe(0)
  })

  it('does not blame the service for a loop that is late: what has come is read', async () => {
    const { json } = granting('token-1')
    const body = JSON.stringify(json)
    const port = await listen((socket) => {
      socket.once('data', () => {
        socket.write(`HTTP/1.1 200 OK\r\nContent-Length: ${body.length}\r\n\r\n${body}`)
        const endMs = performance.now() + 300
        while (performance.now() < endMs);
      })
    })
    const limits = { timeoutMs: 200, connectTimeoutMs: 200 }
    const outcome = await fetchFrom(`http://127.0.0.1:${port}`, { request: limits })
    expect(outcome).toMatchObject({ kind: 'ok' })
  })

  it('ends with the signal', async () => {
    const givenUp = failed('network', /^It was given up$/)
    const service = await serviceOf(() => undefined)
    const stop = new AbortController()
    const outcome = fetcherFor(service.url)(stop.signal)
    await service.arrived(1)
    stop.abort()
    expect(await outcome).toEqual(givenUp)
    await closed(service)
    expect(await fetcherFor(service.url)(AbortSignal.abort())).toEqual(givenUp)
    expect(service.requests).toHaveLength(1)
  })

  it.each([undefined, createCertificate(authority, { names: ['localhost'] })])(
    'ends with the signal also where that comes before there is a connection, and none is left, case %#',
    async (certificate) => {
      const service = await serviceOf(() => undefined, certificate)
      const clock = createSystemClock()
      let stop = new AbortController()
      let isLate = true
      const fetchToken = fetcherFor(service.url, {
        clock: {
          ...clock,
          // The limits are set just before the connection is made.
          sleep: (ms, signal) => (isLate && stop.abort(), clock.sleep(ms, signal)),
        },
        request: { ca: authority.cert },
      })
      expect(await fetchToken(stop.signal)).toMatchObject({ detail: expect.stringContaining('given up') })
      isLate = false
      stop = new AbortController()
      service.answer(granting('t'))
      expect(await fetchToken(stop.signal)).toMatchObject({ kind: 'ok' })
      await closed(service)
      expect(service.requests).toHaveLength(1)
    },
  )
})

it('leaves neither a timer nor a listener nor a connection', async () => {
  const clock = createSystemClock()
  let asleep = 0
  const sleep = async (ms: number, signal: AbortSignal): Promise<void> => {
    asleep += 1
    await clock.sleep(ms, signal)
    asleep -= 1
  }
  const service = await serviceOf(granting('t'))
  const stop = new AbortController()
  const fetchToken = fetcherFor(service.url, { clock: { ...clock, sleep } })
  for (const answer of [granting('t'), accountInactive, { status: 204 }]) {
    service.answer(answer)
    await fetchToken(stop.signal)
    await new Promise(setImmediate)
    expect(asleep).toBe(0)
    expect(getEventListeners(stop.signal, 'abort')).toEqual([])
  }
  await closed(service)
})

describe('the network', () => {
  it('may not know the name, which is that of the setting that has the host', async () => {
    const unknown = 'https://kyc-tokend-test.invalid'
    const elsewhere = { ...standardService(unknown), hostSetting: 'service.tokenUrl' as const }
    for (const service of [standardService(unknown), elsewhere])
      expect(await fetchFrom(unknown, { service })).toMatchObject(
        failed('network', `name of kyc-tokend-test.invalid was not found: check ${service.hostSetting} and`),
      )
  })

  it('may need a while to a name of two addresses, one of them dead', async () => {
    const service = await serviceOf(granting('t'), createCertificate(authority, { names: ['two.example'] }))
    const proxy = await startProxy((_target, socket) => tunnel(`127.0.0.1:${service.port}`, socket))
    onTestFinished(nameHas('127.0.0.1', '127.0.0.2'))
    const ways: [number, (port: number) => [string, string]][] = [
      [service.port, (port) => [`https://two.example:${port}`, '']],
      [Number(proxy.address.split(':')[1]), (port) => ['https://two.example', `two.example:${port}`]],
    ]
    const asked = ways.map(async ([target, urls]) => {
      const port = await freePort()
      const begin = (host: string) => startSilentListener({ host, port, target }, onTestFinished)
      const answer = await begin('127.0.0.1')
      await begin('127.0.0.2')
      const [url, HTTPS_PROXY] = urls(port)
      const request = { ca: authority.cert, connectTimeoutMs: 9_000 }
      const outcome = fetchFrom(url, { env: { HTTPS_PROXY }, request })
      setTimeout(answer, 500)
      return outcome
    })
    for (const outcome of asked) expect(await outcome).toMatchObject({ kind: 'ok' })
  }, 20_000)

  it('may reset before an answer, and in the middle of a body', async () => {
    const before = await serviceOf((_request, { socket }) => socket.resetAndDestroy() && undefined)
    expect(await fetchFrom(before.url)).toMatchObject(failed('network', /closed the connection/))
    const middle = await serviceOf((_request, { response, socket }) => {
      response.writeHead(200, { 'content-length': '100' })
      response.write('{"accessToken":', () => socket.resetAndDestroy())
    })
    expect(await fetchFrom(middle.url)).toMatchObject(failed('network', /before its answer was whole/))
  })
})

describe('TLS', () => {
  const good = createCertificate(authority, { names: ['localhost'] })
  const trusting = { request: { ca: authority.cert } }

  it('takes the right one of several authorities', async () => {
    const service = await serviceOf(granting('t'), good)
    const ca = `# ours\n${createAuthority('Another').cert}\n# theirs\n${authority.cert}`
    expect(await fetchFrom(service.url, { request: { ca } })).toMatchObject({ kind: 'ok' })
  })

  /** Of localhost, good from and until so many days after today. */
  const dated = (from: number, until: number) =>
    createCertificate(authority, {
      names: ['localhost'],
      notBeforeMs: Date.now() + from * DAY_MS,
      notAfterMs: Date.now() + until * DAY_MS,
    })
  const unfit: [string, { cert: string; key: string }, RegExp][] = [
    ['another name', createCertificate(authority, { names: ['other.example'] }), /another name/],
    ['an expired certificate', dated(-2, -1), /has expired/],
    ['a certificate that is not valid yet', dated(1, 2), /not valid yet/],
    ['a certificate signed by itself', createAuthority('localhost'), /signed by itself.*request\.caFile/],
  ]
  it.each(unfit)('with %s gets no request', async (_what, tls, words) => {
    const service = await serviceOf(granting('t'), tls)
    expect(await fetchFrom(service.url, trusting)).toMatchObject(failed('tls', words))
    expect(service.requests).toHaveLength(0)
    await closed(service)
  })

  it.each<[string, (socket: Socket) => void, string, RegExp]>([
    ['is closed', (socket) => socket.once('data', () => socket.destroy()), 'network', /while it was made/],
    ['is answered in plain HTTP', (socket) => socket.end(PLAIN), 'tls', /does not speak TLS/],
    ['is not answered', () => undefined, 'timeout', /^No connection to \S+ within 0.2 s \(request\.connectT/],
  ])('whose handshake %s is reported so, and its connection ends', async (_what, listener, reason, words) => {
    let isClosed = false
    const port = await listen((socket) => listener(socket.resume().on('close', () => (isClosed = true))))
    const connectTimeoutMs = reason === 'timeout' ? 200 : 20_000
    const outcome = await fetchFrom(`https://localhost:${port}`, { request: { connectTimeoutMs } })
    expect(outcome).toMatchObject(failed(reason, words))
    await expect.poll(() => isClosed).toBe(true)
  })
})

describe('a proxy', () => {
  const good = createCertificate(authority, { names: ['localhost'] })
  const request = { ca: authority.cert }

  /** Asks a service, by default none, through this proxy. */
  const through = (HTTPS_PROXY: string, target = 'https://localhost:1', own: Options['request'] = request) =>
    fetchFrom(target, { env: { HTTPS_PROXY }, request: own })

  it('of HTTPS_PROXY carries the TLS connection, and sees nothing in it', async () => {
    const service = await serviceOf(granting('t'), good)
    for (const scheme of ['http://', '']) {
      const proxy = await startProxy(tunnel)
      const outcome = await through(scheme + proxy.address, service.url)
      expect(outcome).toMatchObject({ kind: 'ok', accessToken: 't' })
      expect(proxy.seen).toEqual([`CONNECT localhost:${service.port}`])
      await expect.poll(() => proxy.sockets.size).toBe(0)
    }
  })

  it('may be reached by TLS, and its certificate is for its own name', async () => {
    const service = await serviceOf(
      granting('t'),
      createCertificate(authority, { names: ['api.example.com'] }),
    )
    const proxy = await startProxy((_target, socket) => tunnel(`localhost:${service.port}`, socket), good)
    const address = `https://${proxy.address.replace('127.0.0.1', 'localhost')}`
    expect(await through(address, 'https://api.example.com')).toMatchObject({ kind: 'ok' })
    expect(proxy.seen).toEqual(['CONNECT api.example.com:443'])
    for (const ca of [null, createAuthority('Another').cert])
      expect(await through(address, 'https://api.example.com', { ca })).toMatchObject(
        failed('tls', /\(the proxy of HTTPS_PROXY\) .*not known here: .* in request\.caFile$/),
      )
    expect(proxy.seen).toHaveLength(1)
  })

  it('or none: the checks of TLS are not switched off by NODE_TLS_REJECT_UNAUTHORIZED', async () => {
    const service = await serviceOf(granting('t'), good)
    const proxy = await startProxy(tunnel)
    process.env['NODE_TLS_REJECT_UNAUTHORIZED'] = '0'
    onTestFinished(() => void delete process.env['NODE_TLS_REJECT_UNAUTHORIZED'])
    const secured = await startProxy(tunnel, good)
    for (const address of ['', `http://${proxy.address}`, `https://ada:hush@${secured.address}`])
      expect(await through(address, service.url, {})).toMatchObject(failed('tls', /not known here/))
    expect([proxy.seen.length, secured.seen.length, service.requests.length]).toEqual([1, 0, 0])
  })

  it.each([
    [407, /^The proxy of HTTPS_PROXY does not accept the login \(407\): correct user and password in it/],
    [403, /^The proxy of HTTPS_PROXY forbids the way to localhost:1 \(403\)/],
    [502, /^The proxy of HTTPS_PROXY opened no way to localhost:1 \(it answered 502\)$/],
  ])('that answers %i gets its password, and is not taken for the service', async (status, words) => {
    const proxy = await startProxy((_target, socket) => socket.end(`HTTP/1.1 ${status} No\r\n\r\n`))
    const outcome = await through(`http://user:hush%20hush@${proxy.address}`)
    expect(outcome).toMatchObject(failed('network', words))
    expect(outcome).not.toHaveProperty('status')
    expect(JSON.stringify(outcome)).not.toContain('hush')
    expect(proxy.headers[0]?.['proxy-authorization']).toBe(`Basic ${btoa('user:hush hush')}`)
  })

  const resets = (socket: Socket): unknown => socket.resetAndDestroy()
  it.each<[string, string, string, ((socket: Socket) => unknown) | null]>([
    ['refuses', 'http', ' refused the connection', null],
    ['resets', 'http', ' closed the connection while it was made', resets],
    ['resets', 'https', ' closed the connection while it was made', resets],
    ['speaks no TLS', 'https', ' does not speak TLS, .*: check HTTPS_PROXY', (socket) => socket.end(PLAIN)],
  ])('that %s (%s) is named, without its password', async (_, scheme, words, listener) => {
    const proxy = `127.0.0.1:${listener === null ? 1 : await listen(listener)}`
    expect(await through(`${scheme}://user:pass@${proxy}`)).toHaveProperty(
      'detail',
      expect.stringMatching(`^${proxy} \\(the proxy of HTTPS_PROXY\\)${words}$`),
    )
  })

  it('that has opened a way is not blamed for the service behind it', async () => {
    const port = await listen((socket) => socket.once('data', () => socket.resetAndDestroy()))
    const { address } = await startProxy(tunnel)
    expect(await through(`http://${address}`, `https://localhost:${port}`)).toMatchObject(
      failed('network', `^localhost:${port} closed the connection while it was made$`),
    )
  })

  it.each([
    ['a head without end', 'HTTP/1.1 200 OK\r\n', 'x: y\r\n'.repeat(1_000)],
    ['informational answers without end', '', 'HTTP/1.1 103 Early Hints\r\n\r\n'.repeat(100)],
    ['line breaks without end', '', '\r\n'.repeat(1_000)],
  ])('that answers with %s is given up at once', async (_what, head, drop) => {
    const proxy = await startProxy((_target, socket) => {
      socket.write(head)
      const more = (): void => {
        while (!socket.destroyed && socket.write(drop));
      }
      socket.on('drain', more)
      more()
    })
    const words =
      /^The proxy of HTTPS_PROXY (?:answered with no HTTP, or with a head of more than|opened no way .*103\))/
    expect(await through(`http://${proxy.address}`)).toMatchObject(failed('network', words))
    await expect.poll(() => proxy.sockets.size).toBe(0)
  })

  it('that does not answer is within the limit for connecting', async () => {
    const proxy = await startProxy(() => undefined)
    const outcome = await through(`http://${proxy.address}`, undefined, { connectTimeoutMs: 200 })
    const words = `^No connection to localhost:1 through ${proxy.address} \\(.*request\\.connectTimeout\\)$`
    expect(outcome).toMatchObject(failed('timeout', words))
    await expect.poll(() => proxy.sockets.size).toBe(0)
  })
})
