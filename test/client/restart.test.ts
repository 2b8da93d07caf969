import { expect, onTestFinished, test, vi } from 'vitest'
import { clientOf, codeOf, daemonWith, generous, subscribed } from '../support/client-world.ts'
import { commandWorld, hourToken } from '../support/daemon-world.ts'
import { tokenFields } from '../support/scripted-daemon.ts'
import { granting } from '../support/service.ts'
import { holds } from '../support/until.ts'

test('a connect that is due by the time the disconnect is handled is made at once', async () => {
  let nowS = process.uptime()
  // A process that had to wait for the processor between any two lines.
  const uptime = vi.spyOn(process, 'uptime').mockImplementation(() => (nowS += 0.1))
  onTestFinished(() => uptime.mockRestore())
  const daemon = await daemonWith((asking) => {
    if (daemon.asked.length === 1) asking.cut()
    else generous(asking)
  })
  expect((await clientOf(daemon).get({ waitSeconds: 2 })).accessToken).toBe('token-1')
})

test('a get that a daemon answers because it stops is asked again', async () => {
  const daemon = await daemonWith(({ answer, cut }) => {
    if (daemon.asked.length > 1) return answer('token.result', tokenFields('token-1'))
    answer('fault', { code: 'no-token-yet', message: 'There is no token yet.' })
    setTimeout(cut, 50)
  })
  expect((await clientOf(daemon).get()).accessToken).toBe('token-1')
})

test('a get that waits and a subscription survive a restart of the real daemon', async () => {
  const { daemon, service, again } = await commandWorld({ answer: { status: 503 } })
  const client = clientOf({ path: daemon.ipcPath })
  const { tokens } = subscribed(client)
  await daemon.logged('fetch-failed')
  const got = client.get({ waitSeconds: 30 })
  expect(await daemon.end()).toBe(0)
  const token = hourToken()
  service.answer(granting(token))
  await again()
  expect((await got).accessToken).toBe(token)
  await holds(() => tokens.length === 1)
  expect(tokens).toEqual([`${token} ready`])
  expect(await client.reject(token)).toMatchObject({
    verdict: expect.stringMatching(/^(refreshing|held)$/) as string,
  })
  expect(await client.status()).toMatchObject({ service: { baseUrl: service.url } })
  expect(await client.refresh()).toMatchObject({ outcome: 'ok' })
})

test('a get whose time is over while the daemon is away is rejected', async () => {
  const daemon = await daemonWith(() => undefined)
  const code = codeOf(clientOf(daemon).get({ waitSeconds: 1 }))
  await holds(() => daemon.asked.length === 1)
  await daemon.stop()
  expect(await code).toBe('daemon-unreachable')
})

test('why the daemon closed a connection is the error of all its calls, of which it answered one alone', async () => {
  const answered = new Set<number>()
  const daemon = await daemonWith(({ answer }) => {
    const connection = daemon.connections.made
    if (answered.has(connection)) return
    answered.add(connection)
    answer('fault', { code: 'denied', message: 'This user may not.' })
    setImmediate(() => daemon.cutAll())
  })
  const client = clientOf(daemon)
  const calls = [1, 2, 3, 4, 5].flatMap((minValidSeconds) => [
    client.status(),
    client.get({ minValidSeconds, waitSeconds: 60 }),
  ])
  expect(new Set(await Promise.all(calls.map(codeOf)))).toEqual(new Set(['denied']))
  // Waiting cannot help.
  expect(daemon.connections.made).toBe(1)
})

test('a refresh that is denied says nothing of the other calls when the daemon restarts later', async () => {
  const daemon = await daemonWith(({ type, answer }) => {
    if (type === 'refresh.request') answer('fault', { code: 'denied', message: 'Use sudo.' })
    else if (daemon.connections.made > 1) answer('token.result', tokenFields('token-1'))
  })
  const client = clientOf(daemon)
  const { faults } = subscribed(client)
  const waiting = client.get({ waitSeconds: 30 })
  await holds(() => daemon.asked.length === 2)
  expect(await codeOf(client.refresh())).toBe('denied')
  daemon.cutAll()
  expect((await waiting).accessToken).toBe('token-1')
  expect(faults).toEqual([])
})

test('a real daemon’s limit of requests is the error of the calls that it ends', async () => {
  const { daemon } = await commandWorld({ config: { ipc: { maxRequestsPerSecond: 5 } } })
  const client = clientOf({ path: daemon.ipcPath })
  const results = await Promise.allSettled(Array.from({ length: 40 }, () => client.status()))
  // The first ones may have been answered before.
  const refused = results.filter(({ status }) => status === 'rejected')
  expect(refused.length).toBeGreaterThan(0)
  for (const result of refused) expect(result).toMatchObject({ reason: { code: 'busy' } })
})

test('a refresh is asked once: a connection that is lost may have had its request', async () => {
  const daemon = await daemonWith(({ cut }) => {
    cut()
  })
  expect(await codeOf(clientOf(daemon).refresh())).toBe('daemon-unreachable')
  expect(daemon.asked.length).toBe(1)
})
