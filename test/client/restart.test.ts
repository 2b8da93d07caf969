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

test('why the daemon closed the connection is the error', async () => {
  const daemon = await daemonWith(({ write, cut }) => {
    write('{"type":"fault","data":{"id":null,"code":"busy","message":"Too many connections."}}\f')
    setImmediate(cut)
  })
  await expect(clientOf(daemon).status()).rejects.toMatchObject({
    code: 'busy',
    message: 'Too many connections.',
  })
})

test('a refresh is asked once: a connection that is lost may have had its request', async () => {
  const daemon = await daemonWith(({ cut }) => {
    cut()
  })
  expect(await codeOf(clientOf(daemon).refresh())).toBe('daemon-unreachable')
  expect(daemon.asked.length).toBe(1)
})
