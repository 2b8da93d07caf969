// Sockets handed over by systemd, seen from outside: the whole daemon, which inherits them from what became
// it.
import { existsSync } from 'node:fs'
import { join } from 'node:path'
import { beforeEach, expect, test } from 'vitest'
import { PROGRAM, startDaemon, withSockets } from '../support/daemon.ts'
import { askOnce, connectRaw } from '../support/ipc-client.ts'
import { lacks } from '../support/lacks.ts'
import { httpAsk, serviceOf } from '../support/outside.ts'
import { tempDirectory } from '../support/temp-directory.ts'
import { expectUntil } from '../support/until.ts'

// It hands the sockets over.
beforeEach(({ skip }) => skip(lacks('python3')))

/** A daemon that inherits sockets of these names, and their paths, by index. */
async function startInheriting(names: string, options: { config?: object; baseUrl?: string } = {}) {
  const directory = await tempDirectory()
  const baseUrl = options.baseUrl ?? (await serviceOf()).url
  const paths = names.split(':').map((_name, index) => join(directory, `${index}.sock`))
  const program = withSockets(names.split(':').map((name, index) => `${name}=${paths[index]}`))
  return { daemon: startDaemon({ directory, ...options, baseUrl, program }), paths }
}

test('a socket for metrics answers with metrics and health, never with a token; no socket is opened', async () => {
  const { daemon, paths } = await startInheriting('http:metrics')
  const [http, metrics] = [{ httpPath: paths[0]! }, { httpPath: paths[1]! }]
  await daemon.listening()
  await expectUntil('a token', async () => (await httpAsk(metrics, '/readyz')).status === 200)
  const { accessToken } = (await httpAsk(http, '/v1/token')).json
  const { body, status } = await httpAsk(metrics, '/metrics')
  expect(status).toBe(200)
  expect(body).toContain('kyc_tokend_state{state="ready"} 1')
  expect(body).not.toContain(String(accessToken))
  expect((await httpAsk(metrics, '/healthz')).status).toBe(200)
  for (const path of ['/v1/token', '/v1/authorization', '/v1/status'])
    expect(await httpAsk(metrics, path)).toMatchObject({ status: 404 })
  expect((await httpAsk(metrics, '/v1/refresh', { method: 'POST' })).status).toBe(404)
  expect(existsSync(daemon.ipcPath)).toBe(false)
  expect(await daemon.end()).toBe(0)
})

test('a TCP socket handed over as `ipc` or `http` ends the start with 78 and its remedy; one for metrics is fine', async () => {
  const directory = await tempDirectory()
  const { url: baseUrl } = await serviceOf()
  const launch = (...sockets: string[]) => startDaemon({ directory, baseUrl, program: withSockets(sockets) })
  for (const name of ['ipc', 'http']) {
    const daemon = launch(`${name}=127.0.0.1:0`)
    expect(await daemon.ended()).toBe(78)
    expect(daemon.stderr()).toContain(`with a path that ends with ${name}.sock`)
  }
  const other = launch(`ipc=${join(directory, 'ipc.sock')}`, 'metrics=127.0.0.1:0')
  await other.listening()
  expect(await other.end()).toBe(0)
})

test('with `http` off, connections to its socket are closed at once, also those of operators', async () => {
  const { daemon, paths } = await startInheriting('ipc:http', { config: { http: false } })
  await daemon.listening()
  for (let count = 0; count < 3; count += 1) await (await connectRaw(paths[1]!)).closed()
  expect(await askOnce(paths[0]!, 'token.get', { waitSeconds: 10 })).toMatchObject({ type: 'token.result' })
  expect(await daemon.end()).toBe(0)
  expect(daemon.records('clients-limited')).toEqual([])
})

test('with a faulty configuration the connections that wait are closed, and it ends after 2 s (78); the sockets stay', async () => {
  const { daemon, paths } = await startInheriting('ipc:http', { baseUrl: 'http://elsewhere.example' })
  const connected = async (path: string) => connectRaw(path).catch(() => undefined)
  const waiting = paths.map((path) => expectUntil('a connection', () => connected(path)))
  await Promise.all(waiting.map(async (client) => (await client).closed()))
  const closedAt = performance.now()
  expect(await daemon.ended()).toBe(78)
  expect(performance.now() - closedAt).toBeGreaterThan(1_500)
  expect(daemon.stderr()).toContain('baseUrl')
  expect(paths.filter(existsSync)).toEqual(paths)
})

test('5 restarts beside clients of both sockets that never pause cost no request that had arrived', async () => {
  // A kept token is served from a directory in memory alone.
  const directory = await tempDirectory('memory')
  const [ipc, http] = [join(directory, 'ipc'), join(directory, 'http')]
  // The shell holds the sockets, as systemd does; the daemon ends with it.
  const again =
    'while :; do sh -c "LISTEN_PID=\\$\\$ exec setpriv --pdeathsig TERM \\"\\$@\\"" sh "$@" || exit; done'
  const program = withSockets([`ipc=${ipc}`, `http=${http}`], ['sh', '-c', again, 'sh', ...PROGRAM])
  const shell = startDaemon({ directory, baseUrl: (await serviceOf()).url, program })
  await shell.logged('token-obtained')
  const over = new AbortController()
  const asking = Array.from({ length: 16 }, async (_, index) => {
    while (!over.signal.aborted)
      if (index % 2 === 0) expect((await askOnce(ipc, 'token.get', {}))?.type).toBe('token.result')
      else expect((await httpAsk({ httpPath: http }, '/v1/token')).status).toBe(200)
  })
  const pidNow = async (): Promise<number> =>
    ((await askOnce(ipc, 'status.get', {}))!.data['daemon'] as { pid: number }).pid
  for (let restarts = 0; restarts < 5; restarts += 1) {
    const pid = await pidNow()
    process.kill(pid, 'SIGTERM')
    await expectUntil('a restart', async () => (await pidNow()) !== pid)
  }
  over.abort()
  await Promise.all(asking)
})
