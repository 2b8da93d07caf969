// `credential.sock` without systemd: a program of root's that keeps its connection, and errors of ours.
import { once } from 'node:events'
import { connect } from 'node:net'
import { join } from 'node:path'
import { expect, it, onTestFinished } from 'vitest'
import { createCredentialServer } from '../../src/delivery/credential-server.ts'
import { createDeliveryContext } from '../../src/delivery/servers.ts'
import { createReplies, type Replies } from '../../src/delivery/replies.ts'
import { unitPlace } from '../../src/host/remedy.ts'
import { createSystemClock, type Clock } from '../../src/lib/clock.ts'
import { loadLibc } from '../../src/lib/libc.ts'
import { statusSourcesOf } from '../support/delivery-world.ts'
import { failures } from '../support/failures.ts'
import { createFakeClock } from '../support/fake-clock.ts'
import { runningKeeper } from '../support/keeper-world.ts'
import { createRecords } from '../support/records.ts'
import { tempDirectory } from '../support/temp-directory.ts'
import { expectUntil } from '../support/until.ts'

const json = JSON.stringify({ accessToken: 'token-1' })

const MIB = 1_048_576

async function start(
  token: Replies['token'] | (() => unknown),
  { clock = createSystemClock() }: { clock?: Clock } = {},
) {
  const path = join(await tempDirectory(), 'credential.sock')
  const { log, records } = createRecords()
  const replies = { now: () => clock.now(), token } as unknown as Replies
  const testAlert = () => ({ value: { outcome: 'refused' as const } })
  const reload = () => ({ value: { outcome: 'ok' as const, problems: [], needsRestart: [], pair: null } })
  const context = createDeliveryContext({ replies, testAlert, reload, log, clock })
  const fd = loadLibc().listenAt(path, 1_024)
  const server = createCredentialServer([fd], { ...context, clock })
  await server.open()
  /** Connects as systemd does, which ends its side at once, and counts what it reads. */
  const load = ({ isReading = true } = {}) => {
    const socket = connect({ path, allowHalfOpen: true }).end()
    onTestFinished(() => void socket.destroy())
    let length = 0
    const read = () => socket.on('data', (chunk) => (length += chunk.length))
    if (isReading) read()
    return {
      length: () => length,
      read,
      leave: () => socket.destroy(),
      ended: once(socket, 'end'),
      hasData: () => socket.readableLength > 0,
    }
  }
  return { path, records, server, load }
}

/** A daemon that has no token, on a fake clock. */
async function startWithout() {
  const clock = createFakeClock()
  const { keeper, asked } = await runningKeeper({ clock, first: failures.network })
  await expectUntil('the first attempt to be over', () => asked() > 0)
  await clock.settle()
  const sources = statusSourcesOf(keeper)
  const replies = createReplies({ keeper, sources, place: unitPlace(undefined) })
  let waits = 0
  const token: Replies['token'] = async (...words) => {
    waits += 1
    try {
      return await replies.token(...words)
    } finally {
      waits -= 1
    }
  }
  return { ...(await start(token, { clock })), clock, waits: () => waits }
}

it('a program that has its token and keeps the connection does not hold up the stop', async () => {
  const { path, server } = await start(() => ({ value: { json } }))
  const socket = connect({ path, allowHalfOpen: true })
  onTestFinished(() => void socket.destroy())
  let text = ''
  socket.on('data', (chunk) => (text += chunk.toString()))
  await expectUntil('the token', () => text === 'token-1')
  await server.close()
  expect(socket.destroyed).toBe(false)
})

it('an internal error fails the unit, and not the daemon', async () => {
  const { path, records, server } = await start(() => {
    throw new Error('oops')
  })
  const socket = connect(path)
  let length = 0
  socket.on('data', (chunk) => (length += chunk.length)).end()
  await once(socket, 'close')
  expect(length).toBeGreaterThan(MIB)
  expect(records).toMatchObject([
    { level: 'crit', fields: { event: 'internal-fault', transport: 'credential' } },
  ])
  expect(records[0]?.fields['stack']).toMatch(/^Error: oops\n +at .*credential-server\.test\.ts/)
  await server.close()
})

it('a unit waits for 60 s, and then its start fails, with the reason in the log', async () => {
  const { clock, load, records, waits } = await startWithout()
  const unit = load()
  await expectUntil('the wait', () => waits() === 1)
  await clock.advance(59_000)
  expect([waits(), records]).toEqual([1, []])
  await clock.advance(1_000)
  await unit.ended
  expect(unit.length()).toBeGreaterThan(MIB)
  expect(records).toMatchObject([{ fields: { event: 'credential-failed', reason: 'network' } }])
})

it('a unit that has gone is waited for no longer, and nothing is said of it', async () => {
  const { clock, load, records, waits } = await startWithout()
  const [unit, other] = [load(), load()]
  await expectUntil('the waits', () => waits() === 2)
  unit.leave()
  await clock.advance(1_000)
  expect(waits()).toBe(1)
  await clock.advance(60_000)
  await other.ended
  expect(records).toMatchObject([{ fields: { event: 'credential-failed' } }])
})

it('300 units that wait at the stop are all refused: 64 at a time, and from one buffer', async () => {
  const { load, server, waits } = await startWithout()
  const units = Array.from({ length: 300 }, () => load({ isReading: false }))
  const begun = () => units.filter((unit) => unit.hasData()).length
  await expectUntil('the waits', () => waits() === 300)
  const before = process.memoryUsage().arrayBuffers
  const closed = server.close()
  await expectUntil('the first of them', () => begun() >= 64)
  for (let turns = 0; turns < 100; turns += 1) await new Promise(setImmediate)
  expect(begun()).toBe(64)
  expect(process.memoryUsage().arrayBuffers - before).toBeLessThan(20 * MIB)
  for (const unit of units) unit.read()
  await closed
  await Promise.all(units.map((unit) => unit.ended))
  for (const unit of units) expect(unit.length()).toBeGreaterThan(MIB)
})

it('the stop waits up to 4 s for readers of refusals that are slow, and no longer', async () => {
  const { clock, load, server, waits } = await startWithout()
  const [slow, never] = [load({ isReading: false }), load({ isReading: false })]
  await expectUntil('the waits', () => waits() === 2)
  let isClosed = false
  const closed = server.close().then(() => (isClosed = true))
  await expectUntil('data', () => slow.hasData() && never.hasData())
  await clock.advance(3_900)
  expect(isClosed).toBe(false)
  slow.read()
  await slow.ended
  expect(slow.length()).toBeGreaterThan(MIB)
  await clock.advance(99)
  expect(isClosed).toBe(false)
  await clock.advance(1)
  await closed
})
