// What each request on `ipc.sock` is answered, and what is no request.
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

const isBad = { type: 'fault', data: { code: 'bad-request' } }

describe('token.subscribe', () => {
  it('answers at once and sends each change, with its id', async () => {
    const { world, client } = await startWithClient()
    client.ask('token.subscribe', { id: 's', waitSeconds: 60 })
    expect(await client.frame(0)).toMatchObject({ type: 'token.result', data: { id: 's', generation: 1 } })
    await world.rotate()
    expect(await client.frame(1)).toMatchObject({ type: 'token.changed', data: { id: 's', generation: 2 } })
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

  it('sends a slow reader the newest token on each of its subscriptions, whatever it missed', async () => {
    const world = await startDelivery({ tokenOf: (count) => `${count}-${'x'.repeat(12_000)}` })
    await world.rotate()
    const client = await connectRaw(world.ipcPath)
    for (const id of ['1', '2', '3']) client.ask('token.subscribe', { id })
    await client.frame(2)
    client.socket.pause()
    for (let count = 0; count < 100; count += 1) await world.rotate()
    const newest = world.keeper.state().generation
    client.socket.resume()
    const last = () =>
      client.frames.slice(-3).map(({ data }) => `${String(data['id'])} ${String(data['generation'])}`)
    const all = new Set(['1', '2', '3'].map((id) => `${id} ${newest}`))
    await eventually(() => expect(new Set(last())).toEqual(all))
    expect(client.frames.length).toBeLessThan(100)
  })
})

describe('what is no request', () => {
  const requests = [
    ...['{}', '{"data":null}', '{"data":[]}', '{"data":{}}', '{"data":{"id":""}}', '{"data":{"id":1}}'].map(
      (rest) => rest.replace('{', '{"type":"token.get",').replace(',}', '}'),
    ),
    ...[
      { id: 'x'.repeat(65) },
      { minValidSeconds: -1 },
      { minValidSeconds: '1' },
      { minValidSeconds: 86_401 },
      { waitSeconds: 60.5 },
      { notFingerprint: 'xyz' },
      { client: '' },
      { client: 'x'.repeat(129) },
    ].map((data) => JSON.stringify({ type: 'token.get', data: { id: '1', ...data } })),
    '{"type":"token.reject","data":{"id":"1"}}',
    '{"type":"token.reject","data":{"id":"1","fingerprint":"nope"}}',
    ...['*', 'connect', 'nonsense'].map((type) => JSON.stringify({ type, data: { id: '1' } })),
  ]
  it('is answered with bad-request, and the connection lives', async () => {
    const { client } = await startWithClient()
    client.write(requests.map((frame) => `${frame}\f`).join(''))
    const longest = { id: 'x'.repeat(64), minValidSeconds: 86_400, client: 'x'.repeat(128) }
    client.ask('token.get', longest)
    for (const [index, frame] of requests.entries())
      expect(await client.frame(index), frame).toMatchObject(isBad)
    expect(await client.frame(requests.length)).toMatchObject({ data: { id: longest.id, generation: 1 } })
  })

  it.each([
    'oops\f',
    '\f',
    'null\f',
    '[]\f',
    '{"type":1,"data":{"id":"1"}}\f',
    '{"type":"__proto__","data":{"id":"1"}}\f',
    'x'.repeat(40_000),
    Buffer.from([0xff, 0x0c]),
  ])('loses the connection if it is no frame, after what was asked before is answered', async (bytes) => {
    const { client } = await startWithClient()
    client.ask('token.get', { id: 'before' })
    client.write(bytes)
    await client.closed()
    expect(client.frames.map(({ type }) => type)).toEqual(['token.result', 'fault'])
    expect(client.frames[1]?.data).toMatchObject({ id: null, code: 'bad-request' })
  })

  it.each(['x', 'é'])('is a frame of more than 32,768 bytes, of %s, too', async (letter) => {
    const { client } = await startWithClient()
    const empty = '{"type":"token.get","data":{"id":"","x":""}}'
    const filler = letter.repeat((32_768 - empty.length) / Buffer.byteLength(letter))
    const frame = (id: string): string =>
      `${empty.replace('"id":""', `"id":"${id}"`).replace('"x":""', `"x":"${filler.slice(1)}"`)}\f`
    client.write(frame('1'.repeat(Buffer.byteLength(letter))))
    expect(await client.frame(0)).toMatchObject({ type: 'token.result' })
    client.write(frame('1'.repeat(Buffer.byteLength(letter) + 1)))
    await client.closed()
    expect(client.frames[1]).toMatchObject(isBad)
  })
})

it('a client that half-closes gets the answer it waits for, and no change to which it subscribed', async () => {
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
})

it('token.reject takes a token of 16,384 characters', async () => {
  const accessToken = 'x'.repeat(16_384)
  const world = await startWithToken({ tokenOf: () => accessToken })
  const report = await askOnce(world.ipcPath, 'token.reject', { accessToken })
  expect(report).toMatchObject({ type: 'reject.result', data: { verdict: 'refreshing' } })
})

it('records who took the token, not what it is, and names them to the own user', async () => {
  const world = await startWithToken()
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

it.each(['refresh.request', 'reload.request', 'alert.test'])(
  '%s is denied to another user, whose connection goes on',
  async (type) => {
    const testAlert = vi.fn<() => never>()
    const world = await startDelivery({ testAlert, libc: asStranger })
    const client = await connectRaw(world.ipcPath)
    for (const id of ['1', '2']) client.ask(type, { id })
    expect(await client.frame(1)).toMatchObject({ data: { code: 'denied' } })
    expect(testAlert).not.toHaveBeenCalled()
  },
)

it("node-ipc's own client works", async () => {
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
  const { stdout } = await promisify(execFile)(process.execPath, ['--input-type=module', '-e', program])
  expect(stdout).toBe('token-1\n')
})
