// Requests after a restart: after a crash no sooner than it may, after a refusal nothing.
import { expect, test } from 'vitest'
import { alertFile, command, httpAsk, statusOf, tokenOf } from '../support/outside.ts'
import { accountInactive } from '../support/service.ts'
import { useDaemons } from '../support/daemon-world.ts'
import { expectUntil } from '../support/until.ts'

const world = useDaemons()
const { grant, start, started } = world

test('after a kill in the middle of a request the next start keeps its distance from the service', async () => {
  world.service.answer(() => undefined)
  const config = { retry: { initialDelay: '6s' } }
  const first = start(config)
  await world.service.arrived(1)
  await first.end('SIGKILL')
  world.service.answer(grant)
  const second = await started(config)
  expect((await httpAsk(second, '/v1/token')).json).toMatchObject({ code: 'no-token-yet', reason: 'network' })
  expect((await statusOf(second)).failure).toMatchObject({ reason: 'network', attempts: 1 })
  await world.service.arrived(2)
  const [before, after] = world.service.requests.map(({ atMs }) => atMs)
  expect((after ?? 0) - (before ?? 0)).toBeGreaterThanOrEqual(2_900)
  expect((await tokenOf(second)).accessToken).toBe(world.given[0])
})

test('in a crash loop the service sees growing distances, never below half the delay', async () => {
  world.service.answer(() => undefined)
  const initialDelayMs = 3_000
  const config = { retry: { initialDelay: `${initialDelayMs}ms` } }
  for (let arrivals = 1; arrivals <= 3; arrivals += 1) {
    // One that ends before it may ask, and one that ends the moment it asks.
    if (arrivals > 1) {
      const early = await started(config)
      expect((await statusOf(early)).failure?.attempts).toBe(arrivals - 1)
      await early.end('SIGKILL')
    }
    const daemon = start(config)
    await world.service.arrived(arrivals)
    await daemon.end('SIGKILL')
  }
  const instants = world.service.requests.map(({ atMs }) => atMs)
  const distances = instants.slice(1).map((atMs, index) => atMs - (instants[index] ?? 0))
  // The time from the decision to the arrival of a request may differ.
  const toleratedMs = 100
  for (const [index, distance] of distances.entries()) {
    expect(distance).toBeGreaterThanOrEqual((initialDelayMs * 2 ** index) / 2 - toleratedMs)
  }
})

test('after a crash during a refusal there is no request at any number of restarts, until an operator asks', async () => {
  world.service.answer(accountInactive)
  const first = await started()
  await first.logged('alert')
  await first.end('SIGKILL')
  for (let restart = 0; restart < 3; restart += 1) {
    const daemon = await started()
    expect((await daemon.logged('alert'))['resumed']).toBe(true)
    expect((await command(daemon, 'status')).status).toBe(77)
    expect(alertFile(daemon)).toMatchObject({ reason: 'account-inactive' })
    await daemon.end('SIGKILL')
  }
  expect(world.service.requests).toHaveLength(1)
  world.service.answer(grant)
  const last = await started()
  last.process.kill('SIGUSR2')
  await last.logged('alert-resolved')
  expect(world.service.requests).toHaveLength(2)
  await expectUntil('alert.json to go', () => alertFile(last) === undefined)
})
