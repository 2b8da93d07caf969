import { execFile } from 'node:child_process'
import { promisify } from 'node:util'
import { describe, expect, it, vi } from 'vitest'
import { nameOf } from '../../src/host/ids.ts'
import { failures } from '../support/failures.ts'
import {
  asStranger,
  lateAnswer,
  startDelivery,
  startWithClient,
  startWithToken,
} from '../support/delivery-world.ts'
import { askOnce, connectRaw } from '../support/ipc-client.ts'
import { eventually } from '../support/until.ts'

const run = promisify(execFile)

it('token.reject takes a token of 16,384 characters', async () => {
  const accessToken = 'x'.repeat(16_384)
  const world = await startWithToken({ tokenOf: () => accessToken })
  const report = await askOnce(world.ipcPath, 'token.reject', { accessToken })
  expect(report).toMatchObject({ type: 'reject.result', data: { verdict: 'refreshing' } })
})

describe('token.subscribe', () => {
  it('answers at once and sends each change, with its id', async () => {
    const { world, client } = await startWithClient()
    client.ask('token.subscribe', { id: 's', waitSeconds: 60 })
    const first = await client.frame(0)
    expect(first).toMatchObject({ type: 'token.result', data: { id: 's' } })
    await world.rotate()
    const next = await client.frame(1)
    expect(next).toMatchObject({ type: 'token.changed', data: { id: 's' } })
    expect(next?.data['generation']).toBe(Number(first?.data['generation']) + 1)
    expect(world.ipc.counts().subscribers).toBe(1)
    client.ask('status.get', { id: 'after' })
    expect(await client.frame(2)).toMatchObject({ type: 'status.result' })
  })

  it('is kept when there is no token yet', async () => {
    const world = await startDelivery({ answer: () => failures.network })
    const client = await connectRaw(world.ipcPath)
    client.ask('token.subscribe', { id: 's' })
    expect(await client.frame(0)).toMatchObject({ type: 'fault', data: { id: 's', code: 'no-token-yet' } })
    await world.rotate()
    expect(await client.frame(1)).toMatchObject({ type: 'token.changed', data: { id: 's' } })
  })

  it('sends a slow reader the newest token, whatever it missed', async () => {
    const world = await startDelivery({ tokenOf: (count) => `${count}-${'x'.repeat(12_000)}` })
    await world.rotate()
    const client = await connectRaw(world.ipcPath)
    client.ask('token.subscribe', { id: 's' })
    await client.frame(0)
    client.socket.pause()
    for (let count = 0; count < 100; count += 1) await world.rotate()
    const newest = world.keeper.state().generation
    client.socket.resume()
    await eventually(() => expect(client.frames.at(-1)?.data['generation']).toBe(newest))
    expect(client.frames.length).toBeLessThan(100)
  })
})

describe('requests that are none', () => {
  const wrong = [
    '{"type":"token.get"}',
    '{"type":"token.get","data":null}',
    '{"type":"token.get","data":[]}',
    '{"type":"token.get","data":{}}',
    '{"type":"token.get","data":{"id":""}}',
    '{"type":"token.get","data":{"id":1}}',
    `{"type":"token.get","data":{"id":"${'x'.repeat(65)}"}}`,
    '{"type":"token.get","data":{"id":"1","minValidSeconds":-1}}',
    '{"type":"token.get","data":{"id":"1","minValidSeconds":"1"}}',
    '{"type":"token.get","data":{"id":"1","waitSeconds":61}}',
    '{"type":"token.get","data":{"id":"1","notFingerprint":"xyz"}}',
    '{"type":"token.get","data":{"id":"1","client":""}}',
    '{"type":"token.reject","data":{"id":"1"}}',
    '{"type":"token.reject","data":{"id":"1","fingerprint":"nope"}}',
    ...'* connect close error data start nonsense'
      .split(' ')
      .map((type) => JSON.stringify({ type, data: { id: '1' } })),
  ]
  it('are each answered with bad-request, and the connection lives', async () => {
    const { client } = await startWithClient()
    client.write(wrong.map((frame) => `${frame}\f`).join(''))
    client.ask('token.get', { id: 'after' })
    for (const [index, frame] of wrong.entries())
      expect(await client.frame(index), frame).toMatchObject({ type: 'fault', data: { code: 'bad-request' } })
    expect(await client.frame(wrong.length)).toMatchObject({ type: 'token.result', data: { id: 'after' } })
  })

  it.each([
    'oops\f',
    '\f',
    'null\f',
    '[]\f',
    '{"type":1,"data":{"id":"1"}}\f',
    '{"type":"__proto__","data":{"id":"1"}}\f',
    '{"type":\f',
    'x'.repeat(40_000),
    `"${'x'.repeat(32_767)}"\f`,
    Buffer.from([0xff, 0x0c]),
  ])('broken framing loses the connection, after what was asked before is answered', async (bytes) => {
    const { client } = await startWithClient()
    client.ask('token.get', { id: 'before' })
    client.write(bytes)
    await client.closed()
    expect(client.frames.map(({ type }) => type)).toEqual(['token.result', 'fault'])
    expect(client.frames[1]?.data).toMatchObject({ id: null, code: 'bad-request' })
  })
})

describe('the longest', () => {
  it.each(['x', 'é'])('frame has 32,768 bytes, of %s, too', async (letter) => {
    const { client } = await startWithClient()
    const empty = '{"type":"token.get","data":{"id":"","x":""}}'
    const filler = letter.repeat((32_768 - empty.length) / Buffer.byteLength(letter))
    const frame = (id: string): string =>
      `${empty.replace('"id":""', `"id":"${id}"`).replace('"x":""', `"x":"${filler.slice(1)}"`)}\f`
    client.write(frame('1'.repeat(Buffer.byteLength(letter))))
    expect(await client.frame(0)).toMatchObject({ type: 'token.result' })
    client.write(frame('1'.repeat(Buffer.byteLength(letter) + 1)))
    await client.closed()
    expect(client.frames[1]).toMatchObject({ type: 'fault', data: { code: 'bad-request' } })
  })

  it.each([
    ['id has 64 characters', 'token.get', { id: 'x'.repeat(64) }, { id: 'x'.repeat(65) }],
    ['life is that of a day', 'token.get', { minValidSeconds: 86_400 }, { minValidSeconds: 86_401 }],
    ['wait is a minute', 'token.get', { waitSeconds: 60 }, { waitSeconds: 60.5 }],
    ['name has 128 characters', 'token.get', { client: 'x'.repeat(128) }, { client: 'x'.repeat(129) }],
  ])('%s', async (_what, type, longest, tooLong) => {
    const world = await startWithToken()
    expect(await askOnce(world.ipcPath, type, longest)).toMatchObject({ type: 'token.result' })
    expect(await askOnce(world.ipcPath, type, tooLong)).toMatchObject({ data: { code: 'bad-request' } })
  })
})

describe('the rest', () => {
  it('a client that half-closes gets the answer it waits for, too, and no change to which it subscribed', async () => {
    const { answer, grant } = lateAnswer()
    const world = await startDelivery({ answer })
    const client = await connectRaw(world.ipcPath, { allowHalfOpen: true })
    client.ask('token.subscribe', { id: 'changes' })
    await client.frame(0)
    client.ask('token.get', { id: '1', waitSeconds: 20 })
    client.socket.end()
    await eventually(() => expect(world.ipc.counts()).toMatchObject({ connections: 1, subscribers: 0 }))
    grant()
    expect(await client.frame(1)).toMatchObject({ data: { id: '1', accessToken: 'late' } })
    await client.closed()
    expect(client.frames).toHaveLength(2)
    await eventually(() => expect(world.ipc.counts().connections).toBe(0))
  })

  it('reloads for the own user, and says what is in force', async () => {
    const world = await startWithToken()
    const data = { outcome: 'ok', problems: [], needsRestart: [], pair: null }
    expect(await askOnce(world.ipcPath, 'reload.request', {})).toMatchObject({ type: 'reload.result', data })
  })

  it('refreshes for the own user, and says how it went', async () => {
    const world = await startWithToken()
    expect(await askOnce(world.ipcPath, 'refresh.request', {})).toMatchObject({
      type: 'refresh.result',
      data: { outcome: 'ok', generation: 2 },
    })
    world.answer(() => failures.rejected)
    expect(await askOnce(world.ipcPath, 'refresh.request', {})).toMatchObject({
      data: { outcome: 'failed', reason: 'rejected', generation: 2 },
    })
  })

  it('records who took the token, not what it is, and names them to the own user', async () => {
    const world = await startWithToken()
    world.reconfigure({ allow: { uids: [12_345], gids: [] } })
    for (const client of ['billing', 'billing', undefined])
      await askOnce(world.ipcPath, 'token.get', { client })
    const taken = world.records.filter(({ fields }) => fields.event === 'token-taken')
    const uid = process.getuid!()
    expect(taken.map(({ fields }) => fields)).toMatchObject([
      { uid, transport: 'ipc', clients: ['billing'], count: 1 },
    ])
    expect(JSON.stringify(world.records)).not.toContain('token-1')
    const status = await askOnce(world.ipcPath, 'status.get', {})
    const user = { uid, name: nameOf('user', uid), connections: 1, count: 3, clients: ['billing'] }
    expect(status?.data['readers']).toMatchObject([user])
  })

  it('a request above `maxRequestsPerSecond` gets `busy`, and the connection ends', async () => {
    const { world, client } = await startWithClient()
    world.reconfigure({ maxRequestsPerSecond: 2 })
    for (const id of ['1', '2', '3', '4']) client.ask('token.get', { id })
    await client.closed()
    expect(client.frames.map(({ data }) => data['code'])).toEqual([undefined, undefined, 'busy'])
    expect(world.ipc.counts().dropped['too-many-requests']).toBe(1)
  })
})

it.each(['refresh.request', 'reload.request', 'alert.test'])('%s is denied to another user', async (type) => {
  const testAlert = vi.fn<() => never>()
  const world = await startDelivery({ testAlert, libc: asStranger })
  expect(await askOnce(world.ipcPath, type, {})).toMatchObject({ data: { code: 'denied' } })
  expect(testAlert).not.toHaveBeenCalled()
})

describe('other clients', () => {
  it("node-ipc's own", async () => {
    const world = await startWithToken()
    const program = `
      import { IPCModule } from 'node-ipc'
      const ipc = new IPCModule()
      Object.assign(ipc.config, { silent: true, maxRetries: 0 })
      ipc.connectTo('daemon', '${world.ipcPath}', () => {
        const daemon = ipc.of.daemon
        daemon.on('connect', () => daemon.emit('token.get', { id: '1' }))
        daemon.on('token.result', ({ accessToken }) => {
          console.log(accessToken)
          ipc.disconnect('daemon')
        })
      })`
    const { stdout } = await run(process.execPath, ['--input-type=module', '-e', program])
    expect(stdout).toBe('token-1\n')
  })
})
