import { expect, onTestFinished, test } from 'vitest'
import { createSystemdNotifier } from '../../src/report/systemd.ts'
import { failures } from '../support/failures.ts'
import { createKeeperWorld } from '../support/keeper-world.ts'

/** `refuses`: whether systemd takes nothing now. */
function notified({
  env = { NOTIFY_SOCKET: '/run/notify', PATH: '/bin' },
  refuses = () => false,
}: { env?: NodeJS.ProcessEnv; refuses?: () => boolean } = {}) {
  const world = createKeeperWorld()
  const stopping = new AbortController()
  /** The notifications that were sent, one datagram each. */
  const sent: string[] = []
  const notifier = createSystemdNotifier({
    env,
    pid: 4711,
    keeper: world.keeper,
    clock: world.clock,
    sendDatagram(_path, text) {
      if (refuses()) throw Object.assign(new Error('sendto'), { code: 'EAGAIN' })
      sent.push(String(text))
    },
  })
  const running = notifier.run(stopping.signal)
  const end = async (): Promise<void> => {
    stopping.abort()
    await running
    await world.stop()
  }
  onTestFinished(end)
  const begin = (): Promise<void> => {
    world.start()
    return world.clock.advance(0)
  }
  return { ...world, notifier, sent, env, begin, end }
}

test('ready is reported once, when the sockets answer and there is a token, with how it is there; then the stop', async () => {
  const { notifier, sent, begin, clock, end } = notified()
  expect(sent).toEqual([expect.stringMatching(/^STATUS=starting, no usable token, next attempt \S+Z$/)])
  await begin()
  expect(sent.join()).not.toContain('READY')
  notifier.ready()
  await clock.advance(60_000)
  const status =
    /^STATUS=ready, token good until 2027-01-15T09:00:00Z, next attempt 2027-01-15T08:[34]\d:\d\dZ$/
  expect(sent[1]).toMatch(status)
  expect(sent.slice(2)).toEqual([`READY=1\n${sent[1]}`])
  await end()
  expect(sent.slice(3)).toEqual(['STOPPING=1\nSTATUS=Stopping'])
})

test.each([
  ['fails', 0, /^READY=1\nSTATUS=starting, no usable token, network, next attempt 2027-01-15T08:0\d:\d\dZ$/],
  ['has no answer', 60_000, /^READY=1\nSTATUS=starting, no usable token, next/],
])('where the first attempt %s, ready is reported %d ms after it began', async (_, afterMs, ready) => {
  const { notifier, answer, sent, begin, clock } = notified()
  answer(async (signal) => clock.sleep(afterMs === 0 ? 0 : Infinity, signal).then(() => failures.network))
  notifier.ready()
  expect(sent.join()).not.toContain('READY')
  await begin()
  if (afterMs > 0) await clock.advance(afterMs - 1_000)
  expect(sent.join().includes('READY')).toBe(afterMs === 0)
  await clock.advance(1_000)
  expect(sent.find((text) => text.startsWith('READY'))).toMatch(ready)
})

test('a reload is reported with its moment, and what systemd could not take is sent again at the next tick', async () => {
  let isFull = false
  const { notifier, sent, begin, clock } = notified({ refuses: () => isFull })
  await begin()
  notifier.ready()
  sent.length = 0
  const beforeUs = process.hrtime.bigint() / 1_000n
  notifier.reloading()
  isFull = true
  notifier.ready()
  await clock.advance(60_000)
  isFull = false
  await clock.advance(15_000)
  const [, atUs = 0] = /^RELOADING=1\nMONOTONIC_USEC=(\d+)\nSTATUS=Reading files again$/.exec(sent[0]!) ?? []
  expect(Number(BigInt(atUs) - beforeUs)).toBeGreaterThanOrEqual(0)
  expect(Number(BigInt(atUs) - beforeUs)).toBeLessThan(60_000_000)
  expect(sent[1]).toMatch(/^READY=1\nSTATUS=ready,/)
})

test.each([
  ['three times in its time', { WATCHDOG_USEC: '60000000' }, 6],
  ['also if that is shorter than the loop’s ticks', { WATCHDOG_USEC: '2000000' }, 180],
  ['not if it watches another process', { WATCHDOG_USEC: '60000000', WATCHDOG_PID: '1' }, 0],
])('the watchdog gets a sign of life %s, and none from a loop that does not tick', async (_, env, times) => {
  const { sent, begin, clock } = notified({ env: { NOTIFY_SOCKET: '/run/notify', ...env } })
  const signsIn = async (ms: number): Promise<number> => {
    sent.length = 0
    await clock.advance(ms)
    return sent.filter((text) => text === 'WATCHDOG=1').length
  }
  // The keeper is not started, and is taken for alive for some 45 s.
  await signsIn(60_000)
  expect(await signsIn(60_000)).toBe(0)
  await begin()
  expect(await signsIn(120_000)).toBe(times)
})

test('nothing of it is inherited by children, and without a notify socket nothing is sent', async () => {
  const watchdog = { WATCHDOG_USEC: '9000', WATCHDOG_PID: '2', PATH: '/bin' }
  const { notifier, sent, begin, env } = notified({ env: watchdog })
  await begin()
  notifier.ready()
  notifier.reloading()
  expect(sent).toEqual([])
  expect(env).toEqual({ PATH: '/bin' })
  expect(notified().env).toEqual({ PATH: '/bin' })
})
