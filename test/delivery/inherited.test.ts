// Sockets handed over by systemd, seen from outside: the whole daemon, which inherits them from what became
// it. That of the metrics, and a faulty configuration beside them, are in systemd/.
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
  // It opens none of its own.
  expect([other.ipcPath, other.httpPath].filter(existsSync)).toEqual([])
  expect(await other.end()).toBe(0)
})

test('with `http` off, connections to its socket are closed at once, also those of operators', async () => {
  const directory = await tempDirectory()
  const [ipc, http] = [join(directory, 'ipc'), join(directory, 'http')]
  const program = withSockets([`ipc=${ipc}`, `http=${http}`])
  const daemon = startDaemon({
    directory,
    baseUrl: (await serviceOf()).url,
    config: { http: false },
    program,
  })
  await daemon.listening()
  for (let count = 0; count < 3; count += 1) await (await connectRaw(http)).closed()
  expect(await askOnce(ipc, 'token.get', { waitSeconds: 10 })).toMatchObject({ type: 'token.result' })
  expect(await daemon.end()).toBe(0)
  expect(daemon.records('clients-limited')).toEqual([])
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
