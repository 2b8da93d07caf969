import { mkdtemp, rm } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { expect, onTestFinished, test } from 'vitest'
import { loadLibc } from '../../src/lib/libc.ts'
import { createSystemdNotifier, type SystemdNotifier } from '../../src/report/systemd.ts'
import { createKeeperWorld, failures, type KeeperWorld } from '../support/keeper-world.ts'
import { createLogRecorder, type LogRecorder } from '../support/log-recorder.ts'
import { receiveDatagrams } from '../support/receive-datagrams.ts'

interface Notified extends KeeperWorld, LogRecorder {
  readonly notifier: SystemdNotifier
  /** What was sent, one datagram each. */
  readonly sent: string[]
  readonly env: NodeJS.ProcessEnv
  readonly begin: () => Promise<void>
  readonly end: () => Promise<void>
}

function notified(
  options: { env?: NodeJS.ProcessEnv; sendDatagram?: ((path: string, text: string) => void) | null } = {},
): Notified {
  const world = createKeeperWorld()
  const recorder = createLogRecorder()
  const stopping = new AbortController()
  const sent: string[] = []
  const env = options.env ?? { NOTIFY_SOCKET: '/run/notify', PATH: '/bin' }
  const record = (_path: string, text: string): void => {
    sent.push(text)
  }
  const notifier = createSystemdNotifier({
    env,
    pid: 4711,
    keeper: world.keeper,
    log: recorder.log,
    sendDatagram: options.sendDatagram === undefined ? record : options.sendDatagram,
    monotonicUs: () => 123_456n,
  })
  const running = notifier.run(stopping.signal)
  const end = async (): Promise<void> => {
    stopping.abort()
    await running
    await world.stop()
  }
  onTestFinished(end)
  const begin = async (): Promise<void> => {
    world.start()
    await world.clock.advance(0)
  }
  return { ...world, ...recorder, notifier, sent, env, begin, end }
}

test('ready is told when the sockets answer and there is a token, once, with how it stands', async () => {
  const { notifier, sent, begin, clock } = notified()
  expect(sent).toEqual(['STATUS=starting: no usable token; asking for the first one'])
  await begin()
  expect(sent.join()).not.toContain('READY')
  notifier.ready()
  notifier.ready()
  await clock.advance(60_000)
  expect(sent.filter((text) => text.includes('READY=1'))).toHaveLength(1)
  expect(sent.find((text) => text.startsWith('STATUS=ready'))).toMatch(
    /^STATUS=ready: token [0-9a-f]{16} is good until 2027-01-15 09:00:00 UTC; next refresh 2027-01-15 08:[34]\d:\d\d UTC$/,
  )
})

test('sockets that answer are not enough: the first attempt must have ended, however it ended', async () => {
  const { notifier, answer, sent, begin } = notified()
  answer(failures.network)
  notifier.ready()
  expect(sent.join()).not.toContain('READY')
  await begin()
  expect(sent.at(-1)).toMatch(
    /^READY=1\nSTATUS=starting: no usable token; failed once since 2027-01-15 08:00:00 UTC \(network\), next attempt 2027-01-15 08:00:0\d UTC$/,
  )
})

test('a refusal is told in words that say what to do', async () => {
  const { answer, sent, begin } = notified()
  answer(failures.inactive)
  await begin()
  expect(sent.at(-1)).toBe(
    'STATUS=refused: no usable token; account-inactive, not asked again until somebody acts (see kyc-tokend status)',
  )
})

test('a reload is told with its moment, and its end as ready', async () => {
  const { notifier, sent, begin } = notified()
  await begin()
  notifier.ready()
  sent.length = 0
  notifier.reloading()
  notifier.reloaded()
  expect(sent).toEqual([
    'RELOADING=1\nMONOTONIC_USEC=123456\nSTATUS=Reading the configuration anew',
    expect.stringMatching(/^READY=1\nSTATUS=ready/),
  ])
})

test('stopping is told', async () => {
  const { sent, begin, end } = notified()
  await begin()
  await end()
  expect(sent.at(-1)).toBe('STOPPING=1\nSTATUS=Stopping')
})

test.each([
  [
    'the watchdog is fed at each look where it watches this process',
    { WATCHDOG_USEC: '60000000', WATCHDOG_PID: '4711' },
    8,
  ],
  ['and where no process is named', { WATCHDOG_USEC: '60000000' }, 8],
  ['not where it watches another process', { WATCHDOG_USEC: '60000000', WATCHDOG_PID: '1' }, 0],
  ['not where there is none', {}, 0],
])('%s', async (_, env, times) => {
  const { sent, begin, clock } = notified({ env: { NOTIFY_SOCKET: '/run/notify', ...env } })
  await begin()
  sent.length = 0
  await clock.advance(120_000)
  expect(sent.filter((text) => text === 'WATCHDOG=1')).toHaveLength(times)
})

test('nothing of it is inherited by children', () => {
  const { env } = notified({
    env: { NOTIFY_SOCKET: '/run/notify', WATCHDOG_USEC: '1', WATCHDOG_PID: '2', PATH: '/bin' },
  })
  expect(env).toEqual({ PATH: '/bin' })
})

test('without a notify socket nothing is sent', async () => {
  const { notifier, sent, begin, end } = notified({ env: {} })
  await begin()
  notifier.ready()
  notifier.reloading()
  await end()
  expect(sent).toEqual([])
})

test('without system calls it says so once, and does nothing', async () => {
  const { notifier, begin, clock, of } = notified({ sendDatagram: null })
  await begin()
  notifier.ready()
  await clock.advance(60_000)
  expect(of('notify-failed')).toEqual([
    expect.objectContaining({ level: 'warning', error: expect.stringContaining('koffi') as string }),
  ])
})

test('what systemd could not take is sent again at the next look', async () => {
  let isFull = true
  const taken: string[] = []
  const { notifier, begin, clock } = notified({
    sendDatagram: (_path, text) => {
      if (isFull) throw new Error('EAGAIN')
      taken.push(text)
    },
  })
  await begin()
  notifier.ready()
  isFull = false
  await clock.advance(15_000)
  expect(taken[0]).toMatch(/^READY=1\nSTATUS=ready/)
})

test('a real receiver gets it', async () => {
  const directory = await mkdtemp(join(tmpdir(), 'kyc-notify-'))
  onTestFinished(() => rm(directory, { recursive: true }))
  const socket = join(directory, 'notify')
  const receiver = await receiveDatagrams(socket)
  onTestFinished(() => {
    receiver.stop()
  })
  const libc = loadLibc()
  if ('error' in libc) throw new Error(libc.error)
  const { notifier, begin } = notified({
    env: { NOTIFY_SOCKET: socket },
    sendDatagram: (path, text) => {
      libc.sendDatagram(path, text)
    },
  })
  expect(await receiver.next()).toBe('STATUS=starting: no usable token; asking for the first one')
  notifier.ready()
  await begin()
  expect(await receiver.next()).toMatch(/^READY=1\nSTATUS=ready: token/)
})
