// What each request on `ipc.sock` is answered, what is no request, and what is recorded of who asked.
import { expect, it } from 'vitest'
import { nameOf } from '../../src/host/ids.ts'
import { asStranger, lateAnswer, startDelivery, startWithClient } from '../support/delivery-world.ts'
import { failures } from '../support/failures.ts'
import { askOnce, connectRaw } from '../support/ipc-client.ts'
import { httpAsk } from '../support/outside.ts'
import { eventually } from '../support/until.ts'

const MINUTE_MS = 60_000
const isBad = { type: 'fault', data: { code: 'bad-request' } }

it('a subscription is answered at once and hears of each change, also when there is no token', async () => {
  const { world, client } = await startWithClient({ first: failures.network })
  client.ask('token.subscribe', { id: 's', waitSeconds: 60 })
  expect(await client.frame(0)).toMatchObject({ type: 'fault', data: { id: 's', code: 'no-token-yet' } })
  for (const generation of [1, 2]) {
    await world.rotate()
    const changed = { type: 'token.changed', data: { id: 's', generation } }
    expect(await client.frame(generation)).toMatchObject(changed)
  }
  world.answer(failures.network)
  await world.clock.advance(30 * MINUTE_MS)
  const expired = { type: 'fault', data: { id: 's', code: 'expired' } }
  await eventually(() => expect(client.frames.at(-1)).toMatchObject(expired))
  expect(world.ipc.counts().subscribers).toBe(1)
})

it('a slow subscriber gets the newest token on each of its subscriptions, whatever it missed', async () => {
  const tokenOf = (number: number): string => `${number}-${'x'.repeat(12_000)}`
  const { world, client } = await startWithClient({ tokenOf })
  for (const id of ['1', '2', '3']) client.ask('token.subscribe', { id })
  await client.frame(2)
  client.socket.pause()
  for (let count = 0; count < 100; count += 1) await world.rotate()
  client.socket.resume()
  const newest = ['1', '2', '3'].map((id) => ({ id, generation: 101 }))
  await eventually(() => {
    const last = client.frames.slice(-3).map(({ data: { id, generation } }) => ({ id, generation }))
    expect(last).toEqual(expect.arrayContaining(newest))
  })
  expect(client.frames.length).toBeLessThan(100)
})

it('a client that half-closes gets the answer it waits for, and no change to which it subscribed', async () => {
  const { first, grant } = lateAnswer()
  const world = await startDelivery({ first })
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

it('a request that is not understood gets `bad-request`, and the connection goes on', async () => {
  const { world, client } = await startWithClient()
  const faulty = [
    ...[undefined, null, [], {}, { id: '' }, { id: 1 }, { id: 'x'.repeat(65) }].map((data) => {
      return { type: 'token.get', data }
    }),
    ...[
      { minValidSeconds: -1 },
      { minValidSeconds: '1' },
      { minValidSeconds: 86_401 },
      { waitSeconds: 60.5 },
      { notFingerprint: 'xyz' },
      { client: '' },
      { client: 'x'.repeat(129) },
    ].map((data) => ({ type: 'token.get', data: { id: '1', ...data } })),
    { type: 'token.subscribe', data: { id: '1', waitSeconds: -1 } },
    { type: 'token.reject', data: { id: '1' } },
    { type: 'token.reject', data: { id: '1', fingerprint: 'nope' } },
    ...['*', 'connect', 'nonsense'].map((type) => ({ type, data: { id: '1' } })),
  ]
  client.write(faulty.map((request) => `${JSON.stringify(request)}\f`).join(''))
  const longest = { id: 'x'.repeat(64), minValidSeconds: 86_400, waitSeconds: 60, client: 'x'.repeat(128) }
  client.ask('token.get', longest)
  for (const [index, request] of faulty.entries())
    expect(await client.frame(index), JSON.stringify(request)).toMatchObject(isBad)
  expect(await client.frame(faulty.length)).toMatchObject({ data: { id: longest.id, generation: 1 } })
  expect(world.ipc.counts().subscribers).toBe(0)
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
])('what is no frame ends the connection, after what was asked before is answered', async (bytes) => {
  const { client } = await startWithClient()
  client.ask('token.get', { id: 'before' })
  client.write(bytes)
  await client.closed()
  expect(client.frames).toMatchObject([{ type: 'token.result' }, isBad])
  expect(client.frames[1]?.data).toMatchObject({ id: null })
})

it('a frame has at most 32,768 bytes, whatever their characters', async () => {
  const { client } = await startWithClient()
  const [begin, end] = ['{"type":"token.reject","data":{"id":"1","accessToken":"', '"}}\f']
  const room = 32_768 + 1 - begin.length - end.length
  const longest = begin + 'é'.repeat(room / 2) + 'x'.repeat(room % 2)
  client.write(longest + end)
  expect(await client.frame(0)).toMatchObject({ type: 'reject.result', data: { verdict: 'replaced' } })
  client.write(`${longest}x${end}`)
  await client.closed()
  expect(client.frames[1]).toMatchObject(isBad)
})

it('frames are read wherever the stream is split', async () => {
  const world = await startDelivery()
  const bytes = Buffer.from(['é', '2'].map((id) => `{"type":"token.get","data":{"id":"${id}"}}\f`).join(''))
  for (let at = 1; at < bytes.length; at += 1) {
    const client = await connectRaw(world.ipcPath)
    client.write(bytes.subarray(0, at))
    await new Promise((resolve) => setImmediate(resolve))
    client.write(bytes.subarray(at))
    await client.frame(1)
    expect(client.frames.map(({ data }) => data['id'])).toEqual(['é', '2'])
    client.socket.destroy()
  }
})

it('another user is denied what operators may request, and its connection goes on', async () => {
  const testAlert = (): never => expect.fail('It was raised')
  const { world, client } = await startWithClient({ testAlert, libc: asStranger })
  const types = ['refresh.request', 'reload.request', 'alert.test']
  for (const type of types) client.ask(type, { id: '1' })
  for (const [index] of types.entries())
    expect(await client.frame(index)).toMatchObject({ data: { code: 'denied' } })
  expect(world.asked()).toBe(1)
})

it('who took or reported the token is recorded at once and once an hour, and shown to the own user', async () => {
  const world = await startDelivery()
  const uid = process.getuid!()
  const report = async (client?: string) =>
    askOnce(world.ipcPath, 'token.reject', { accessToken: 'token-0', client })
  const act = async (client?: string): Promise<void> => {
    await askOnce(world.ipcPath, 'token.get', { client })
    await httpAsk(world, '/v1/token')
    await report(client)
  }
  const readers = async () =>
    (await askOnce(world.ipcPath, 'status.get', {}))?.data['readers'] as { lastAt: string }[]
  await report('name-0')
  expect(await readers()).toEqual([])
  for (let index = 0; index < 20; index += 1) await act(`name-${index}`)
  const recorded = () =>
    ['token-taken', 'token-rejected'].map((event) => world.of(event).map(({ count }) => count))
  world.pass(60 * MINUTE_MS - 15_000)
  expect(recorded()).toEqual([[1], [1]])
  world.pass(15_000)
  await act()
  expect(recorded()).toEqual([
    [1, 39],
    [1, 21],
  ])
  expect(world.of('token-taken')[0]).toMatchObject({ uid, transport: 'ipc', clients: ['name-0'] })
  expect(JSON.stringify(world.records)).not.toMatch(/token-[01]/)
  const clients = Array.from({ length: 8 }, (_, index) => `name-${index}`)
  const [reader, ...others] = await readers()
  expect(others).toEqual([])
  expect(reader).toMatchObject({ uid, name: nameOf('user', uid), connections: 1, count: 42, clients })
  expect(Math.abs(Date.now() - Date.parse(reader!.lastAt))).toBeLessThan(10_000)
})
