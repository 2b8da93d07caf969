import { access, chmod, readFile, rm, stat, writeFile } from 'node:fs/promises'
import { join } from 'node:path'
import { beforeEach, expect, onTestFinished, test } from 'vitest'
import type { AlertsConfig } from '../../src/config/config.ts'
import { createAlerts } from '../../src/report/alerts.ts'
import { createRemedies } from '../../src/host/remedy.ts'
import { remedyOf } from '../support/remedies.ts'
import { serviceFacts } from '../support/facts.ts'
import { failures } from '../support/failures.ts'
import { createKeeperWorld } from '../support/keeper-world.ts'
import { createRecords } from '../support/records.ts'
import { tempDirectory } from '../support/temp-directory.ts'

const HOUR = 3_600_000
let directory: string
let path: string

beforeEach(async () => {
  directory = await tempDirectory()
  path = join(directory, 'alert.json')
})

/** With a `first` answer the keeper has begun. */
async function alerting(
  options: Parameters<typeof createKeeperWorld>[0] & {
    settings?: Partial<AlertsConfig>
    account?: string
  } = {},
) {
  const world = createKeeperWorld(options)
  const recorder = createRecords()
  const stopping = new AbortController()
  const alerts = createAlerts({
    keeper: world.keeper,
    log: recorder.log,
    path,
    settings: {
      remindAfterMs: [HOUR, 6 * HOUR, 24 * HOUR],
      noTokenAfterMs: 60 * HOUR,
      contact: null,
      ...options.settings,
    },
    host: () => 'web-1',
    account: options.account,
    remedyOf: createRemedies({ account: options.account, isUnit: true }).remedyOf,
  })
  const running = alerts.run(stopping.signal)
  /** An orderly stop or a crash: the file stays as it is. */
  const end = async (): Promise<void> => {
    stopping.abort()
    await running
    await world.stop()
  }
  onTestFinished(end)
  /** The keeper begins to run, and what it does at once is done. */
  const begin = async (): Promise<void> => {
    world.start()
    await world.clock.advance(0)
  }
  if (options.first !== undefined) await begin()
  /** An operator has the service asked. */
  const ask = async (outcome: Parameters<typeof world.answer>[0]): Promise<void> => {
    world.answer(outcome)
    void world.keeper.refresh(new AbortController().signal)
    await world.clock.advance(0)
  }
  return { ...world, ...recorder, alerts, end, begin, ask }
}

async function isThere(): Promise<boolean> {
  return access(path).then(
    () => true,
    () => false,
  )
}
async function content(): Promise<Record<string, unknown>> {
  await expect.poll(isThere).toBe(true)
  return JSON.parse(await readFile(path, 'utf8')) as Record<string, unknown>
}

async function resolvedContent(): Promise<Record<string, unknown>> {
  await expect.poll(async () => (await content())['state']).toBe('resolved')
  return content()
}

test('a refusal raises one alert: in the log and, for everybody to read, in alert.json until it is over', async () => {
  const { answer, ask, clock, events, of, reload, token } = await alerting({ first: failures.notFound })
  const sentence = 'The service knows no account for these credentials'
  const alert = {
    level: 'alert',
    event: 'alert',
    reason: 'account-not-found',
    detail: 'Account not found',
    remedy: remedyOf('account-not-found'),
    host: 'web-1',
    since: '2027-01-15T08:00:00.000Z',
  }
  expect(of('alert')).toEqual([{ sentence, ...alert }])
  const { level: _, ...fields } = alert
  const raised = { state: 'raised', message: sentence, ...fields }
  expect(await content()).toEqual(raised)
  const { ino, mode } = await stat(path)
  expect(mode & 0o777).toBe(0o644)
  // Asking again in vain says nothing new.
  await ask({ ...failures.notFound, detail: 'Account not found (request 2)' })
  await clock.advance(60_000)
  expect((await stat(path)).ino).toBe(ino)
  await rm(path)
  await clock.advance(15_000)
  await expect.poll(() => of('file-restored')).toMatchObject([{ level: 'warning', path }])
  expect(await content()).toEqual(raised)
  await clock.advance(525_000)
  expect(events()).toEqual(['alert', 'file-restored'])
  answer(token)
  reload('second', { service: serviceFacts('other') })
  await clock.advance(0)
  const { reason, host } = alert
  expect(await resolvedContent()).toMatchObject({ reason })
  await clock.advance(45_000)
  expect(await isThere()).toBe(true)
  await clock.advance(30_000)
  await expect.poll(isThere).toBe(false)
  expect(of('alert-resolved')).toMatchObject([{ level: 'notice', reason, host, since: alert.since }])
})

test('the alert of an account has its name, and commands for it', async () => {
  const { of } = await alerting({ account: 'eu', first: failures.inactive })
  expect(of('alert')).toMatchObject([
    { account: 'eu', remedy: expect.stringContaining('`sudo kyc-tokend refresh --account eu`') as string },
  ])
})

test('a file that is left where no alert is there is removed', async () => {
  await writeFile(path, JSON.stringify({ state: 'raised', reason: 'account-inactive' }))
  const { events } = await alerting()
  await expect.poll(isThere).toBe(false)
  expect(events()).toEqual([])
})

test('a directory that cannot be written is reported once, and the file is there when it can', async () => {
  const { answer, begin, clock, of } = await alerting()
  // A directory that others may write is refused, by root too.
  await chmod(directory, 0o777)
  answer(failures.inactive)
  await begin()
  const failed = () => of('file-error').filter((record) => record['path'] === path)
  await expect.poll(() => failed().length).toBe(1)
  await clock.advance(60_000)
  expect(failed()).toMatchObject([{ level: 'error', error: { kind: 'unsafe-directory', directory } }])
  expect(of('alert')).toHaveLength(1)
  await chmod(directory, 0o755)
  await clock.advance(15_000)
  expect(await content()).toMatchObject({ reason: 'account-inactive' })
})

test('no usable token for too long raises an alert with the failure behind it, and a token ends it', async () => {
  const contact = 'Ops, +44 20 7946 0000'
  const { answer, clock, keeper, of } = await alerting({
    settings: { noTokenAfterMs: 600_000, contact },
    first: failures.network,
  })
  await clock.advance(590_000)
  expect(of('alert')).toEqual([])
  await clock.advance(30_000)
  expect(await content()).toMatchObject({
    reason: 'no-token',
    failure: 'network',
    remedy: remedyOf('network'),
    contact,
    noTokenSince: '2027-01-15T08:00:00.000Z',
    since: expect.stringMatching(/^2027-01-15T08:10:/) as string,
  })
  // Another service knows of no failure yet, and there is no token still.
  const { service, policy, newest: pair } = keeper.state()
  keeper.reload({ service: { ...service, id: 'another' }, policy, pair })
  await clock.advance(0)
  expect(of('alert-resolved')).toEqual([])
  answer({ kind: 'ok', accessToken: 'good' })
  await expect
    .poll(async () => {
      await clock.advance(10_000)
      return of('alert-resolved').length
    })
    .toBe(1)
  expect(await resolvedContent()).toEqual({
    state: 'resolved',
    message: 'The alert is over',
    event: 'alert-resolved',
    reason: 'no-token',
    host: 'web-1',
    contact,
    since: expect.stringMatching(/^2027-01-15T08:10:/) as string,
    resolvedAt: expect.stringMatching(/^2027-01-15T08:1/) as string,
  })
  expect(of('alert')).toHaveLength(1)
})

test('a reminder is in the file, and a restart neither repeats nor loses an alert or a reminder', async () => {
  const first = await alerting({ first: failures.inactive })
  await content()
  await first.clock.advance(2 * HOUR)
  await expect.poll(async () => (await content())['remindedAt']).toBe('2027-01-15T09:00:00.000Z')
  await first.end()
  const { ino } = await stat(path)
  const second = await alerting({ state: first.keeper.state(), clock: first.clock })
  await second.begin()
  await second.clock.advance(15_000)
  await second.end()
  expect(second.events()).toEqual([])
  expect((await stat(path)).ino).toBe(ino)
  await first.clock.advance(8 * HOUR)
  const third = await alerting({ state: first.keeper.state(), clock: first.clock })
  await third.begin()
  await expect.poll(() => third.of('alert').map(({ reminder }) => reminder)).toEqual([2])
})

test('a rehearsal goes the whole way and resolves itself; a real alert replaces it, and refuses another', async () => {
  const { alerts, ask, begin, clock, of } = await alerting()
  await begin()
  const raised = { outcome: 'raised', resolvesAt: '2027-01-15T08:00:10.000Z' }
  expect(alerts.test()).toEqual(raised)
  expect(alerts.test()).toMatchObject({ outcome: 'refused' })
  expect(alerts.current()).toBeNull()
  expect(await content()).toMatchObject({ reason: 'test', test: true })
  await clock.advance(15_000)
  expect(await resolvedContent()).toMatchObject({ reason: 'test', test: true })
  alerts.test()
  await ask(failures.inactive)
  const detail = expect.stringContaining('account-inactive') as string
  expect(alerts.test()).toMatchObject({ outcome: 'refused', detail })
  expect(of('alert').map(({ reason }) => reason)).toEqual(['test', 'test', 'account-inactive'])
  expect(of('alert-resolved').map(({ reason }) => reason)).toEqual(['test', 'test'])
  await expect.poll(async () => (await content())['reason']).toBe('account-inactive')
})

test('a refusal that another host of the fleet was given is an error here, without a file: its host notifies people', async () => {
  const world = await alerting({ first: { ...failures.inactive, askedBy: 'web-17' } })
  expect(world.of('alert')).toMatchObject([{ level: 'error', reason: 'account-inactive', askedBy: 'web-17' }])
  await world.ask(world.token())
  expect(world.of('alert-resolved')).toHaveLength(1)
  expect(await isThere()).toBe(false)
})
