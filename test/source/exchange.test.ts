// The exchange with the service over real servers and proxies: its limits of time and size, TLS, and what is left.
import { spawn } from 'node:child_process'
import { getEventListeners, once } from 'node:events'
import net, { type Socket } from 'node:net'
import { describe, expect, it, onTestFinished } from 'vitest'
import { createSystemClock } from '../../src/lib/clock.ts'
import { Secret } from '../../src/lib/secret.ts'
import { createAuthority, createCertificate } from '../support/certificates.ts'
import { serviceOf } from '../support/outside.ts'
import { freePort } from '../support/redis.ts'
import { accountInactive, granting, type Service } from '../support/service.ts'
import { fetcherFor, fetchFrom, listen, nameHas, startProxy, tunnel } from '../support/source.ts'

const DAY_MS = 86_400_000
const authority = createAuthority()
const localhost = createCertificate(authority, { names: ['localhost'] })
const trusting = { request: { ca: authority.cert } }
const failed = (reason: string, words: string | RegExp = /^/) => ({
  kind: 'transient',
  reason,
  detail: expect.stringMatching(words),
})
/** Writes the drop again and again. */
function drip(socket: Socket, head: string, drop: string): void {
  socket.write(head)
  const timer = setInterval(() => socket.write(drop), 5)
  socket.on('close', () => clearInterval(timer))
}
/** Resolves when the service sees no connection any more. */
const closed = async (service: Service): Promise<void> => {
  await expect.poll(() => service.connections.open).toBe(0)
}
describe('the answer', () => {
  const token = '{"accessToken":"abc"}'
  const ok = 'HTTP/1.1 200 OK\r\nContent-Length: 21\r\n'
  const bodyOf = (bytes: number, said = bytes) =>
    `HTTP/1.1 200 OK\r\nContent-Length: ${said}\r\n\r\n${token.padEnd(bytes)}`
  const chunked = 'HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n'
  const given = { accessToken: 'abc' }
  const noAnswer = failed('malformed-answer', /is no HTTP, or too long/)
  it.each<[string, string, object]>([
    ['may have a head of nearly 16 KiB', `${ok}x: ${'x'.repeat(16_000)}\r\n\r\n${token}`, given],
    ['has no longer head', `${ok}x: ${'x'.repeat(17_000)}\r\n\r\n${token}`, noAnswer],
    [
      'has no longer heads together',
      `HTTP/1.1 103 E\r\nx: ${'x'.repeat(15_000)}\r\n\r\n`.repeat(2),
      noAnswer,
    ],
    ['may have a body of 64 KiB', bodyOf(65_536), given],
    ['is not read further', bodyOf(65_537, 1e9), failed('malformed-answer', /at most 64 KiB/)],
    ['has no chunks without end', `${chunked}${`1;${'x'.repeat(16_000)}\r\n{\r\n`.repeat(70)}`, noAnswer],
    ['is as long as it says', `${ok}\r\n${token}xyz`, noAnswer],
    ['is HTTP', '220 mail.example ESMTP\r\n', noAnswer],
  ])('%s', async (_title, bytes, outcome) => {
    const port = await listen((socket) => socket.once('data', () => socket.end(bytes)))
    expect(await fetchFrom(`http://127.0.0.1:${port}`)).toMatchObject(outcome)
  })

  it('that redirects is not followed', async () => {
    const other = await serviceOf(granting('stolen'))
    const service = await serviceOf({ status: 307, headers: { location: other.url } })
    expect(await fetchFrom(service.url)).toMatchObject(failed('malformed-answer'))
    expect(other.connections.opened).toBe(0)
  })
})

describe('the request', () => {
  it('goes out once it was announced, and says when it was written', async () => {
    const service = await serviceOf(granting('token-1'))
    const go = Promise.withResolvers<void>()
    const steps: string[] = []
    const outcome = fetcherFor(service.url)(new AbortController().signal, {
      beforeRequest: () => (steps.push('announced'), go.promise),
      onSent: () => void steps.push('sent'),
    })
    // As long as another exchange takes.
    await fetchFrom((await serviceOf()).url)
    expect(service.connections.opened).toBe(0)
    go.resolve()
    expect(await outcome).toMatchObject({ kind: 'ok' })
    expect(steps).toEqual(['announced', 'sent'])
  })

  it('ends with the signal, whenever that comes', async () => {
    const service = await serviceOf(() => undefined)
    const stop = new AbortController()
    const outcome = fetcherFor(service.url)(stop.signal)
    await service.arrived(1)
    stop.abort()
    expect(await outcome).toMatchObject({ kind: 'transient', reason: 'network' })
    await closed(service)
    expect(await fetcherFor(service.url)(AbortSignal.abort())).toMatchObject({ kind: 'transient' })
    expect(service.requests).toHaveLength(1)
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
      expect([asleep, getEventListeners(stop.signal, 'abort')]).toEqual([0, []])
    }
    await closed(service)
    await fetcherFor(`http://127.0.0.1:${await freePort()}`, { clock: { ...clock, sleep } })(stop.signal)
    await new Promise(setImmediate)
    expect(asleep).toBe(0)
  })
})

describe('time', () => {
  const SWITCH = 'HTTP/1.1 101 Switching Protocols\r\nUpgrade: x\r\nConnection: Upgrade\r\n\r\n'
  it.each([
    ['an answer that drips', 'HTTP/1.1 200 OK\r\n\r\n', ' '],
    ['headers that drip', 'HTTP/1.1 200 OK\r\n', 'x: y\r\n'],
    ['a service that accepts and says nothing', '', ''],
    ['a switch of protocols, which ends the connection without an error', SWITCH, ''],
  ])('is limited for %s', async (_title, head, drop) => {
    const port = await listen((socket) => drip(socket.resume(), head, drop))
    const limits = { timeoutMs: 200, connectTimeoutMs: 50 }
    const outcome = await fetchFrom(`http://127.0.0.1:${port}`, { request: limits })
    const words = `^No answer from 127.0.0.1:${port} within 0.2 s \\(request.timeout\\)$`
    expect(outcome).toMatchObject(failed('timeout', words))
  })

  it('does not blame the service for a loop that is late: what has come is read', async () => {
    const port = await listen((socket) => {
      socket.once('data', () => {
        socket.write('HTTP/1.1 200 OK\r\nContent-Length: 19\r\n\r\n{"accessToken":"t"}')
        const endMs = performance.now() + 300
        while (performance.now() < endMs);
      })
    })
    const limits = { timeoutMs: 200, connectTimeoutMs: 200 }
    expect(await fetchFrom(`http://127.0.0.1:${port}`, { request: limits })).toMatchObject({ kind: 'ok' })
  })
})

describe('the network', () => {
  it('may not know the name, or refuse the connection', async () => {
    expect(await fetchFrom('https://kyc-tokend-test.invalid')).toMatchObject(
      failed('network', /^The name of kyc-tokend-test\.invalid was not found/),
    )
    const refusing = `127.0.0.1:${await freePort()}`
    const words = `^The connection to ${refusing} failed \\(ECONNREFUSED\\)$`
    expect(await fetchFrom(`http://${refusing}`)).toMatchObject(failed('network', words))
  })

  /** Listens until the test ends, stopped and with a full backlog: the kernel answers no SYN. */
  async function startSilentListener(host: string, port: number): Promise<void> {
    const program = `require('node:net').createServer().listen({ port: ${port}, host: '${host}', backlog: 1 }, () => console.log('listens'))`
    const child = spawn(process.execPath, ['-e', program], { stdio: ['ignore', 'pipe', 'inherit'] })
    onTestFinished(() => void child.kill('SIGKILL'))
    await once(child.stdout, 'data')
    child.kill('SIGSTOP')
    const fillers = Array.from({ length: 3 }, () => net.connect(port, host).on('error', () => undefined))
    onTestFinished(() => fillers.forEach((socket) => socket.destroy()))
    await once(fillers[1]!, 'connect')
  }

  it('is tried at each address of a name, for a third of `connectTimeout`', async () => {
    const service = await serviceOf(granting('t'))
    nameHas('127.0.0.2', '127.0.0.1')
    await startSilentListener('127.0.0.2', service.port)
    const begunMs = performance.now()
    const request = { connectTimeoutMs: 3_000 }
    expect(await fetchFrom(`http://two.localhost:${service.port}`, { request })).toMatchObject({ kind: 'ok' })
    expect(performance.now() - begunMs).toBeGreaterThan(990)
  })

  it('may reset before an answer, and in the middle of a body', async () => {
    const before = await serviceOf((_request, { socket }) => socket.resetAndDestroy() && undefined)
    const middle = await serviceOf((_request, { response, socket }) => {
      response.writeHead(200, { 'content-length': '100' })
      response.write('{"accessToken":', () => socket.resetAndDestroy())
    })
    for (const { url } of [before, middle])
      expect(await fetchFrom(url)).toMatchObject(failed('network', /ECONNRESET/))
  })
})

describe('TLS', () => {
  const another = createAuthority('Another').cert
  it('takes the right one of several authorities', async () => {
    const service = await serviceOf(granting('t'), localhost)
    const ca = `# theirs\n${another}\n# ours\n${authority.cert}`
    expect(await fetchFrom(service.url, { request: { ca } })).toMatchObject({ kind: 'ok' })
  })

  /** Of localhost, good from and until so many days after today. */
  const dated = (from: number, until: number) =>
    createCertificate(authority, {
      names: ['localhost'],
      notBeforeMs: Date.now() + from * DAY_MS,
      notAfterMs: Date.now() + until * DAY_MS,
    })
  it.each([
    ['another name', createCertificate(authority, { names: ['other.example'] }), authority.cert],
    ['an expired certificate', dated(-2, -1), authority.cert],
    ['a certificate that is not valid yet', dated(1, 2), authority.cert],
    ['another authority', localhost, another],
    ['an authority that is not known', localhost, null],
  ])('with %s gets no request', async (_what, tls, ca) => {
    const service = await serviceOf(granting('t'), tls)
    const outcome = await fetchFrom(service.url, { request: { ca } })
    expect(outcome).toMatchObject(failed('tls', /^The certificate of localhost:\d+ does not hold \(/))
    expect(service.requests).toHaveLength(0)
    await closed(service)
  })

  it.each<[string, (socket: Socket) => void, string, RegExp]>([
    ['is closed', (socket) => socket.once('data', () => socket.destroy()), 'network', /ECONNRESET/],
    ['is answered in HTTP', (socket) => socket.end('HTTP/1.1 400 Bad\r\n\r\n'), 'tls', /^TLS with/],
    ['is not answered', () => undefined, 'timeout', /within 0.2 s \(request\.connectTimeout\)$/],
  ])('whose handshake %s is reported so, and its connection ends', async (_what, listener, reason, words) => {
    const port = await listen((socket) => listener(socket.resume()))
    const connectTimeoutMs = reason === 'timeout' ? 200 : 20_000
    const outcome = await fetchFrom(`https://localhost:${port}`, { request: { connectTimeoutMs } })
    expect(outcome).toMatchObject(failed(reason, words))
  })
})

describe('a proxy', () => {
  /** Asks a service, by default none, through this proxy. */
  const through = (HTTPS_PROXY: string, target = 'https://localhost:1', request = {}, NO_PROXY = '') =>
    fetchFrom(target, { env: { HTTPS_PROXY, NO_PROXY }, request: { ...trusting.request, ...request } })

  it('carries the TLS connection, and gets its login, of the environment or of `request.proxy`', async () => {
    const service = await serviceOf(granting('t'), localhost)
    const proxy = await startProxy()
    const own = { url: `http://${proxy.address}`, user: 'ada', password: new Secret('p:%4') }
    for (const [of, HTTPS_PROXY, request, login] of [
      ['a scheme', `HTTP://${proxy.address}`, {}, undefined],
      ['none', ` ${proxy.address}\n`, {}, undefined],
      ['a login', `http://user:hush%20100%@${proxy.address}`, {}, 'user:hush 100%'],
      ['request.proxy', 'http://of-env:1', { proxy: own }, 'ada:p:%4'],
    ] as const) {
      expect(await through(HTTPS_PROXY, service.url, request), of).toMatchObject({ kind: 'ok' })
      expect(proxy.logins.pop(), of).toBe(login && btoa(login))
    }
    expect(proxy.seen).toEqual(Array(4).fill(`localhost:${service.port}`))
    expect(await through('http://of-env:1', service.url, { proxy: false })).toMatchObject({ kind: 'ok' })
    const upper = { HTTPS_PROXY: 'http://of-env:1', https_proxy: proxy.address }
    expect(await fetchFrom(service.url, { env: upper, ...trusting })).toMatchObject({ kind: 'ok' })
    const plain = await serviceOf(granting('t'))
    expect(await through('socks5://proxy', plain.url)).toMatchObject({ kind: 'ok' })
    expect(proxy.seen).toHaveLength(5)
  })

  it.each([
    [true, 'api.localhost', 'x.example, LOCALHOST'],
    [true, 'localhost', 'x,localhost:PORT'],
    [true, 'localhost', 'x *'],
    [false, 'localhost', 'ocalhost'],
    [false, '127.0.0.1', '0.0.1'],
    [false, 'localhost', 'localhost:1'],
  ])('is passed by (%s) for %s with NO_PROXY=%s', async (isPassed, host, NO_PROXY) => {
    const port = await listen((socket) => socket.destroy())
    const proxy = await startProxy((_target, socket) => socket.destroy())
    nameHas('127.0.0.1')
    const target = `https://${host}:${port}`
    expect(await through(proxy.address, target, {}, NO_PROXY.replace('PORT', String(port)))).toMatchObject({
      reason: 'network',
    })
    expect(proxy.seen).toEqual(isPassed ? [] : [`${host}:${port}`])
  })

  it('that is no HTTP proxy is never passed by, and no password is shown', async () => {
    const service = await serviceOf(granting('t'), localhost)
    for (const proxy of [
      'socks5://user:pass@proxy:1',
      'nohttp://proxy',
      'http://user:pass@',
      'http://%ff@proxy',
    ])
      expect(await through(proxy, service.url)).toMatchObject(failed('network', /^(?!.*pass)/))
    expect(service.connections.opened).toBe(0)
  })

  it('or none: the checks of TLS are not switched off by NODE_TLS_REJECT_UNAUTHORIZED', async () => {
    const service = await serviceOf(granting('t'), localhost)
    const proxy = await startProxy()
    const secured = await startProxy(tunnel, localhost)
    process.env['NODE_TLS_REJECT_UNAUTHORIZED'] = '0'
    onTestFinished(() => void delete process.env['NODE_TLS_REJECT_UNAUTHORIZED'])
    for (const address of ['', `http://${proxy.address}`, `https://ada:hush@${secured.address}`])
      expect(await through(address, service.url, { ca: null })).toMatchObject(failed('tls'))
    expect([proxy.seen.length, secured.seen.length, service.requests.length]).toEqual([1, 0, 0])
  })

  it.each<[string, string, (socket: Socket) => unknown, string]>([
    ['refuses', 'http', (socket) => socket.write('HTTP/1.1 407 No\r\n\r\n'), ' \\(CONNECT answered 407\\)$'],
    ['resets', 'http', (socket) => socket.resetAndDestroy(), ''],
    ['speaks no TLS', 'https', (socket) => socket.end('HTTP/1.1 4\r\n'), ''],
  ])('that %s (%s) is named without its password, and is left', async (_, scheme, listener, why) => {
    const port = await listen((socket) => socket.once('data', () => listener(socket)))
    const proxy = `127.0.0.1:${port}`
    const words = `^(?:The connection to|TLS with) ${proxy} \\(the proxy of HTTPS_PROXY\\) failed${why}`
    expect(await through(`${scheme}://user:hush@${proxy}`)).toEqual({
      kind: 'transient',
      reason: scheme === 'https' ? 'tls' : 'network',
      detail: expect.stringMatching(words) as string,
    })
  })

  it('that has opened a way is not blamed for the service behind it', async () => {
    const port = await listen((socket) => socket.once('data', () => socket.resetAndDestroy()))
    const { address } = await startProxy()
    expect(await through(`http://${address}`, `https://localhost:${port}`)).toMatchObject(
      failed('network', `^The connection to localhost:${port} failed`),
    )
  })

  const late = ['timeout', '^No answer from PROXY within 0.3 s \\(request\\.connectTimeout\\)$'] as const
  it.each<[string, (socket: Socket) => void, string, string]>([
    ['in many pieces', (socket) => drip(socket, 'HTTP/1.1 200 OK\r\n', 'x: y\r\n'), ...late],
    ['not at all', () => undefined, ...late],
    [
      'with a head without end',
      (socket) => drip(socket, 'HTTP/1.1 200 OK\r\n', 'x: y\r\n'.repeat(1_000)),
      'malformed-answer',
      '^The answer of PROXY is no HTTP, or too long',
    ],
  ])('that answers %s is left within the limits', async (_how, answer, reason, words) => {
    const { address } = await startProxy((_target, socket) => answer(socket))
    const outcome = await through(`http://${address}`, undefined, { connectTimeoutMs: 300 })
    const named = words.replace('PROXY', `${address} \\(the proxy of HTTPS_PROXY\\)`)
    expect(outcome).toMatchObject(failed(reason, named))
  })
})
