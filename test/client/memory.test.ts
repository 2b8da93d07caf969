import { readFileSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'
import { expect, onTestFinished, test, vi } from 'vitest'
import type { GetOptions, TokenClientError } from '../../src/client/index.ts'
import { clientOf, codeOf, daemonWith, generous } from '../support/client-world.ts'
import { commandWorld } from '../support/daemon-world.ts'
import { serviceOf } from '../support/outside.ts'
import { tokenFields, type Asking } from '../support/scripted-daemon.ts'
import { expectUntil, holds } from '../support/until.ts'

const isoIn = (seconds: number): string => new Date(Date.now() + seconds * 1_000).toISOString()
/** Gives a token with this life, once; then it is silent. */
function onceWithLife(seconds: number): (asking: Asking) => void {
  let isFirst = true
  return ({ answer }) => {
    if (isFirst) answer('token.result', tokenFields('token-1', { expiresAt: isoIn(seconds) }))
    isFirst = false
  }
}

test('while the daemon is away the last token is given again, and is marked', async () => {
  const daemon = await daemonWith(generous)
  const client = clientOf(daemon)
  expect(await client.get()).not.toHaveProperty('cached')
  await daemon.stop()
  expect(await client.get()).toEqual({ ...tokenFields('token-1'), cached: true })
  expect(await client.get({ waitSeconds: 0 })).toMatchObject({ cached: true })
})

test('options that are changed later change nothing', async () => {
  const daemon = await daemonWith((asking) => void (daemon.asked.length === 1 && generous(asking)))
  const client = clientOf(daemon)
  const options: GetOptions = {}
  const { fingerprint } = await client.get(options)
  const call = client.get(options)
  options.notFingerprint = fingerprint
  expect(await call).toMatchObject({ cached: true })
})

test.each([
  ['busy', 'a token'],
  ['account-inactive', 'account-inactive'],
])('a daemon that is %s gives %s: what it says of the token is believed', async (code, expected) => {
  const daemon = await daemonWith((asking) => {
    if (daemon.asked.length === 1) generous(asking)
    else asking.answer('fault', { code, message: 'Act.' })
  })
  const client = clientOf(daemon)
  await client.get()
  const given = client.get().then(({ cached }) => cached === true && 'a token')
  expect(await given.catch(({ code: ofError }: TokenClientError) => ofError)).toBe(expected)
})

test('a token that was reported as refused is not given from memory', async () => {
  const daemon = await daemonWith((asking) => {
    if (asking.type === 'token.reject') asking.answer('reject.result', { verdict: 'refreshing' })
    else generous(asking)
  })
  const client = clientOf(daemon)
  const { accessToken } = await client.get()
  await client.reject(accessToken)
  await daemon.stop()
  expect(await codeOf(client.get({ waitSeconds: 0 }))).toBe('daemon-unreachable')
})

test('nor is one with too little life left, nor the one that is not wanted', async () => {
  const daemon = await daemonWith(onceWithLife(60))
  const client = clientOf(daemon)
  const { fingerprint } = await client.get()
  await daemon.stop()
  expect(await client.get({ minValidSeconds: 30, waitSeconds: 0 })).toMatchObject({ cached: true })
  expect(await codeOf(client.get({ minValidSeconds: 90, waitSeconds: 0 }))).toBe('daemon-unreachable')
  expect(await codeOf(client.get({ notFingerprint: fingerprint, waitSeconds: 0 }))).toBe('daemon-unreachable')
})

test('nor is one that has expired, by the clock on the wall or by the time that has passed', async () => {
  const daemon = await daemonWith(onceWithLife(60))
  const client = clientOf(daemon)
  await client.get()
  await daemon.stop()
  const clocks = [
    () => vi.spyOn(Date, 'now').mockReturnValue(Date.now() + 61_000),
    () => vi.spyOn(process, 'uptime').mockReturnValue(process.uptime() + 61),
  ]
  for (const shift of clocks) {
    const clock = shift()
    expect(await codeOf(client.get({ waitSeconds: 0 }))).toBe('daemon-unreachable')
    clock.mockRestore()
  }
  expect(await client.get({ waitSeconds: 0 })).toMatchObject({ cached: true })
})

test('a token that a subscription brought is remembered, too', async () => {
  const daemon = await daemonWith(generous)
  const client = clientOf(daemon)
  const generations: number[] = []
  onTestFinished(client.subscribe(({ generation }) => void generations.push(generation)))
  await holds(() => generations.length === 1)
  daemon.publish('token.changed', tokenFields('token-2', { generation: 2 }))
  await holds(() => generations.length === 2)
  await daemon.stop()
  expect(await client.get()).toMatchObject({ accessToken: 'token-2', cached: true })
})

test.each(['no-token-yet', 'expired', 'account-inactive', 'account-not-found'])(
  'a fault that says that there is no token (%s) ends what is in memory',
  async (code) => {
    const daemon = await daemonWith((asking) => {
      if (daemon.asked.length === 1) generous(asking)
      else if (daemon.asked.length === 2) asking.answer('fault', { code, message: 'None.' })
    })
    const client = clientOf(daemon)
    await client.get()
    expect(await codeOf(client.get({ waitSeconds: 0 }))).toBe(code)
    expect(await codeOf(client.get({ waitSeconds: 0 }))).toBe('timeout')
    await daemon.stop()
    expect(await codeOf(client.get({ waitSeconds: 0 }))).toBe('daemon-unreachable')
  },
)

test('the token of another service is not given while the daemon waits for one, nor later', async () => {
  const { daemon, service, directory } = await commandWorld()
  const client = clientOf({ path: daemon.ipcPath })
  await client.get()
  const other = await serviceOf(() => ({ status: 503 }))
  const file = join(directory, 'kyc-tokend.config.json')
  writeFileSync(file, readFileSync(file, 'utf8').replace(service.url, other.url))
  daemon.process.kill('SIGHUP')
  await expectUntil('the other service to be asked', () => other.requests.length > 0)
  expect(await codeOf(client.get({ waitSeconds: 1 }))).toBe('no-token-yet')
  await daemon.end('SIGKILL')
  expect(await codeOf(client.get({ waitSeconds: 0 }))).toBe('daemon-unreachable')
})
