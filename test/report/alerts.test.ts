import { existsSync, readFileSync, rmSync, statSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'
import { beforeEach, expect, onTestFinished, test, vi } from 'vitest'
import type { AlertsConfig } from '../../src/config/config.ts'
import { createAlerts } from '../../src/report/alerts.ts'
import { createRemedies } from '../../src/host/remedy.ts'
import { serviceFacts } from '../support/facts.ts'
import { failures } from '../support/failures.ts'
import { createFakeClock } from '../support/fake-clock.ts'
import { createKeeperWorld } from '../support/keeper-world.ts'
import { createRecords } from '../support/records.ts'
import { tempDirectory } from '../support/temp-directory.ts'

const HOUR = 3_600_000
/** Requests to the file system, for which the clock stands still. */
const isBusy = (): boolean =>
  process.getActiveResourcesInfo().some((name) => /^(FSReq|FileHandleClose|Close)/.test(name))
let path: string

beforeEach(async () => {
  path = join(await tempDirectory(), 'alert.json')
})

/** The alerts of the account `eu`. With a `first` answer the keeper has begun. */
async function alerting(
  options: Parameters<typeof createKeeperWorld>[0] & { settings?: Partial<AlertsConfig> } = {},
) {
  const world = createKeeperWorld({ clock: createFakeClock({ isBusy }), ...options })
  const recorder = createRecords()
  const stopping = new AbortController()
  const { remedyOf } = createRemedies({ account: 'eu', isUnit: true })
  const settings = {
    remindAfterMs: [HOUR, 6 * HOUR, 24 * HOUR],
    noTokenAfterMs: 60 * HOUR,
    contact: null,
    ...options.settings,
  }
  const { keeper, clock } = world
  const own = { path, settings, host: () => 'web-1', account: 'eu', remedyOf }
  const alerts = createAlerts({ keeper, log: recorder.log, ...own })
  const running = alerts.run(stopping.signal)
  /** An orderly stop or a crash: the file stays as it is. */
  const end = async (): Promise<void> => {
    stopping.abort()
    await running
    await world.stop()
  }
  onTestFinished(end)
  /** The keeper begins to run, and what it does at once is done. */
  const begin = (): Promise<void> => {
    world.start()
    return clock.advance(0)
  }
  if (options.first !== undefined) await begin()
  /** An operator has the service asked. */
  const ask = async (outcome: Parameters<typeof world.answer>[0]): Promise<void> => {
    world.answer(outcome)
    void keeper.refresh(new AbortController().signal)
    await clock.advance(0)
  }
  return { ...world, ...recorder, alerts, remedyOf, end, begin, ask }
}

const isThere = (): boolean => existsSync(path)

function content(): Record<string, unknown> {
  return JSON.parse(readFileSync(path, 'utf8')) as Record<string, unknown>
}

test('a refusal raises one alert: in the log and, for everybody to read, in alert.json until it is over', async () => {
  const { answer, ask, clock, events, of, reload, remedyOf, token } = await alerting({
    first: failures.notFound,
  })
  const sentence = 'The service knows no account for these credentials'
  const alert = {
    event: 'alert',
    reason: 'account-not-found',
    detail: 'Account not found',
    remedy: remedyOf('account-not-found'),
    host: 'web-1',
    account: 'eu',
    since: '2027-01-15T08:00:00.000Z',
  }
  expect(of('alert')).toEqual([{ level: 'alert', sentence, ...alert }])
  const raised = { state: 'raised', message: sentence, ...alert }
  expect(content()).toEqual(raised)
  const { ino, mode } = statSync(path)
  expect(mode & 0o777).toBe(0o644)
  // Asking again in vain says nothing new.
  await ask({ ...failures.notFound, detail: 'Account not found (request 2)' })
  await clock.advance(60_000)
  expect(statSync(path).ino).toBe(ino)
  rmSync(path)
  await clock.advance(15_000)
  expect(content()).toEqual(raised)
  expect(events()).toEqual(['alert', 'file-restored'])
  answer(token)
  reload('second', { service: serviceFacts('other') })
  await clock.advance(0)
  expect(content()).toMatchObject({ state: 'resolved' })
  await clock.advance(45_000)
  expect(isThere()).toBe(true)
  await clock.advance(30_000)
  expect(isThere()).toBe(false)
  const { reason, host, since } = alert
  expect(of('alert-resolved')).toMatchObject([{ level: 'notice', reason, host, since }])
})

test('no usable token for too long raises an alert with the failure behind it, and a token ends it', async () => {
  const contact = 'Ops, +44 20 7946 0000'
  const { ask, clock, of, reload, remedyOf } = await alerting({
    settings: { noTokenAfterMs: 600_000, contact },
    first: failures.network,
  })
  await clock.advance(590_000)
  expect(of('alert')).toEqual([])
  await clock.advance(30_000)
  const since = expect.stringMatching(/^2027-01-15T08:10:/) as string
  expect(content()).toMatchObject({
    reason: 'no-token',
    failure: 'network',
    remedy: remedyOf('network'),
    contact,
    noTokenSince: '2027-01-15T08:00:00.000Z',
    since,
  })
  // Another service knows of no failure yet, and there is no token still.
  reload('first', { service: serviceFacts('another') })
  await clock.advance(0)
  expect(of('alert-resolved')).toEqual([])
  await ask({ kind: 'ok', accessToken: 'good' })
  expect(content()).toEqual({
    state: 'resolved',
    message: 'The alert is over',
    event: 'alert-resolved',
    reason: 'no-token',
    host: 'web-1',
    account: 'eu',
    contact,
    since,
    resolvedAt: expect.stringMatching(/^2027-01-15T08:10:/) as string,
  })
  expect(of('alert')).toHaveLength(1)
})

test('a reminder is in the file, and a restart neither repeats nor loses an alert or a reminder', async () => {
  const { clock, ...first } = await alerting({ first: failures.inactive })
  await clock.advance(2 * HOUR)
  expect(content()).toMatchObject({ state: 'raised', remindedAt: '2027-01-15T09:00:00.000Z' })
  await first.end()
  const { ino } = statSync(path)
  const state = first.keeper.state()
  const second = await alerting({ state, clock })
  await second.begin()
  await clock.advance(15_000)
  await second.end()
  expect(second.events()).toEqual([])
  expect(statSync(path).ino).toBe(ino)
  await clock.advance(8 * HOUR)
  const third = await alerting({ state, clock })
  expect(third.of('alert').map(({ reminder }) => reminder)).toEqual([2])
})

test('a rehearsal goes the whole way and resolves itself; a real alert replaces it, and refuses another', async () => {
  vi.useFakeTimers({ toFake: ['setTimeout'] })
  onTestFinished(() => void vi.useRealTimers())
  // A former run has left it: no alert is there.
  writeFileSync(path, JSON.stringify({ state: 'raised', reason: 'account-inactive' }))
  const { alerts, ask, begin, clock, events, of } = await alerting()
  await begin()
  expect(isThere()).toBe(false)
  expect(events()).toEqual([])
  const raised = { outcome: 'raised', resolvesAt: '2027-01-15T08:00:10.000Z' }
  expect(alerts.test()).toEqual(raised)
  expect(alerts.test()).toMatchObject({ outcome: 'refused' })
  expect(alerts.current()).toBeNull()
  await clock.settle()
  expect(content()).toMatchObject({ state: 'raised', reason: 'test', test: true })
  await clock.advance(10_000)
  vi.advanceTimersByTime(10_000)
  await clock.settle()
  expect(content()).toMatchObject({ state: 'resolved', reason: 'test', test: true })
  alerts.test()
  await ask(failures.inactive)
  const detail = expect.stringContaining('account-inactive') as string
  expect(alerts.test()).toMatchObject({ outcome: 'refused', detail })
  expect(of('alert').map(({ reason }) => reason)).toEqual(['test', 'test', 'account-inactive'])
  expect(of('alert-resolved').map(({ reason }) => reason)).toEqual(['test', 'test'])
  expect(content()).toMatchObject({ reason: 'account-inactive' })
})

test('a refusal that another host of the fleet was given is an error here, without a file: its host notifies people', async () => {
  const world = await alerting({ first: { ...failures.inactive, askedBy: 'web-17' } })
  expect(world.of('alert')).toMatchObject([{ level: 'error', reason: 'account-inactive', askedBy: 'web-17' }])
  await world.ask(world.token())
  expect(world.of('alert-resolved')).toHaveLength(1)
  expect(isThere()).toBe(false)
})
