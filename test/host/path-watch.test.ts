import { chmodSync, chownSync, closeSync, mkdirSync, rmSync, statSync, writeFileSync } from 'node:fs'
import { createServer } from 'node:net'
import { join } from 'node:path'
import { expect, it } from 'vitest'
import { loadLibc } from '../../src/lib/libc.ts'
import type { InheritedSockets } from '../../src/host/inherited-sockets.ts'
import { createPathWatch } from '../../src/host/path-watch.ts'
import { openSocket, rendered, unitPlace } from '../../src/host/place-commands.ts'
import { listening } from '../support/listening.ts'
import { createRecords } from '../support/records.ts'
import { tempDirectory } from '../support/temp-directory.ts'

const none: InheritedSockets = { ipc: [], http: [], metrics: [], unknown: [] }

async function watching(inherited = none, path?: string) {
  const directory = await tempDirectory()
  const at = (name: string): string => join(directory, name)
  for (const name of ['run', 'state']) mkdirSync(at(name), { mode: 0o700 })
  const ipc = { path: path ?? at('run/ipc.sock'), mode: 0o600, gid: null, allow: { uids: [], gids: [] } }
  const config = { runtimeDirectory: at('run'), stateDirectory: at('state'), ipc, http: null }
  const { log, of } = createRecords()
  const place = { account: undefined, isUnit: path !== undefined }
  const watch = createPathWatch({ config: () => config, inherited, place, log })
  return { at, of, watch, ipc }
}

it('a directory or socket of its own that lost its mode has it again, and the log says so', async () => {
  const { at, of, watch, ipc } = await watching()
  await listening(createServer(), ipc.path)
  chmodSync(ipc.path, 0)
  chmodSync(at('state'), 0o100)
  await watch.tick()
  expect([statSync(ipc.path).mode & 0o777, statSync(at('state')).mode & 0o777]).toEqual([0o600, 0o700])
  expect(of('path-restored').map(({ path }) => path)).toEqual(expect.arrayContaining([ipc.path, at('state')]))
  expect(watch.problems()).toEqual([])
})

it.runIf(process.getuid!() === 0)(
  'what it cannot mend is told once, and is over when it is mended',
  async () => {
    const { at, of, watch } = await watching()
    writeFileSync(at('state/key'), '')
    chownSync(at('state/key'), 12_345, 12_345)
    for (let tick = 0; tick < 2; tick += 1) await watch.tick()
    const problem = `the file ${at('state/key')} belongs to the user 12345, which is gone, and not to root, so that the daemon cannot use it: \`rm -f ${at('state/key')}\``
    expect(watch.problems()).toEqual([problem])
    expect(of('path-problem')).toMatchObject([{ level: 'error', path: at('state/key'), error: problem }])
    rmSync(at('state/key'))
    await watch.tick()
    expect(watch.problems()).toEqual([])
  },
)

it('sockets of systemd that a stop closes before the first tick are no fault', async () => {
  const path = join(await tempDirectory(), 'ipc.sock')
  const fd = loadLibc().listenAt(path, 1)
  const { watch } = await watching({ ...none, ipc: [fd] }, path)
  closeSync(fd)
  await watch.tick()
  expect(watch.problems()).toEqual([])
})

it('a socket of systemd that was changed or removed is told with the commands that make it again', async () => {
  const path = join(await tempDirectory(), 'ipc.sock')
  const fd = loadLibc().listenAt(path, 1)
  chmodSync(path, 0o660)
  const { watch } = await watching({ ...none, ipc: [fd] }, path)
  await watch.tick()
  expect(watch.problems()).toEqual([])
  chmodSync(path, 0o060)
  await watch.tick()
  // Its owner may change it.
  expect(statSync(path).mode & 0o777).toBe(0o660)
  rmSync(path)
  await watch.tick()
  expect(watch.problems()).toEqual([
    expect.stringMatching(
      /ipc\.sock is not there, so that clients cannot connect: `sudo systemd-tmpfiles --create kyc-tokend\.conf && /,
    ),
  ])
})

it('a socket of systemd to which everybody may connect is told, unless `allow` names its users', async () => {
  const path = join(await tempDirectory(), 'ipc.sock')
  const fd = loadLibc().listenAt(path, 1)
  chmodSync(path, 0o666)
  const { watch, ipc, of } = await watching({ ...none, ipc: [fd] }, path)
  for (let tick = 0; tick < 2; tick += 1) await watch.tick()
  expect(of('socket-open')).toMatchObject([
    { level: 'warning', path, remedy: expect.stringContaining('SocketMode=0660') as string },
  ])
  // Another unit's than those of the package.
  expect(watch.problems()).toEqual([rendered(openSocket(path, unitPlace(undefined)))])
  ipc.allow = { uids: [1], gids: [] } as unknown as typeof ipc.allow
  await watch.tick()
  expect(watch.problems()).toEqual([])
})
