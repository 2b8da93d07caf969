import { getEventListeners } from 'node:events'
import { expect, onTestFinished, test } from 'vitest'
import {
  clientOf,
  codeOf,
  daemonWith,
  generous,
  pass,
  subscribed,
  useFakeTime,
} from '../support/client-world.ts'
import { commandWorld, hourToken } from '../support/daemon-world.ts'
import { tokenFields } from '../support/scripted-daemon.ts'
import { granting } from '../support/service.ts'
import { holds } from '../support/until.ts'

test('a subscriber is called now and at each change, until it ends it', async () => {
  const daemon = await daemonWith(generous)
  const { tokens, end } = subscribed(clientOf(daemon))
  await holds(() => tokens.length === 1)
  daemon.publish('token.changed', tokenFields('token-2'))
  await holds(() => tokens.length === 2)
  daemon.publish('token.changed', tokenFields('token-2', { state: 'degraded' }))
  await holds(() => tokens.length === 3)
  end()
  daemon.publish('token.changed', tokenFields('token-3'))
  await clientOf(daemon).get()
  expect(tokens).toEqual(['token-1 ready', 'token-2 ready', 'token-2 degraded'])
})

test('any number of listeners share one subscription, and a later one gets the newest', async () => {
  const daemon = await daemonWith(generous)
  const client = clientOf(daemon)
  const first = subscribed(client)
  await holds(() => first.tokens.length === 1)
  daemon.publish('token.changed', tokenFields('token-2'))
  await holds(() => first.tokens.length === 2)
  const others = Array.from({ length: 100 }, () => subscribed(client))
  await holds(() => others.every(({ tokens }) => tokens.length === 1))
  expect(others[99]?.tokens).toEqual(['token-2 ready'])
  first.end()
  daemon.publish('token.changed', tokenFields('token-3'))
  await holds(() => others.every(({ tokens }) => tokens.length === 2))
  expect(first.tokens.length).toBe(2)
  expect(daemon.asked.length).toBe(1)
})

test('listeners may come and go on one connection as often as they like', async () => {
  const { daemon } = await commandWorld({ answer: granting(hourToken()) })
  const client = clientOf({ path: daemon.ipcPath })
  await client.get()
  for (let round = 0; round < 100; round += 1) {
    const { tokens, faults, end } = subscribed(client)
    await holds(() => tokens.length + faults.length > 0)
    expect(faults).toEqual([])
    end()
  }
  expect((await client.status()).clients.ipc).toEqual({ connections: 1, subscribers: 1 })
})

test('a subscription survives restarts, and repeats nothing', async () => {
  let token = tokenFields('token-1')
  const daemon = await daemonWith(({ answer }) => answer('token.result', token))
  const client = clientOf(daemon)
  const { tokens, faults } = subscribed(client)
  await holds(() => tokens.length === 1)
  await daemon.stop()
  await daemon.start()
  await holds(() => daemon.asked.length === 2)
  daemon.publish('token.changed', { ...token, expiresAt: '2030-01-01T01:00:00.300Z' })
  await client.get()
  await daemon.stop()
  token = tokenFields('token-2')
  await daemon.start()
  await holds(() => tokens.length === 2)
  expect(tokens).toEqual(['token-1 ready', 'token-2 ready'])
  // A restart within a second is no fault, and no number of them slows the next connect.
  for (let restart = 0; restart < 6; restart += 1) {
    const { length } = daemon.asked
    await daemon.stop()
    await daemon.start()
    await holds(() => daemon.asked.length > length)
  }
  expect(faults).toEqual([])
  await daemon.stop()
  await holds(() => faults.length === 1)
  expect(faults).toEqual(['daemon-unreachable'])
})

test('a daemon that is back after 0.7 s was restarted, which is no fault', async () => {
  useFakeTime()
  const daemon = await daemonWith(generous)
  // Each draws its own delays between two connects.
  const all = Array.from({ length: 10 }, () => subscribed(clientOf(daemon)))
  await holds(() => all.every(({ tokens }) => tokens.length === 1))
  await daemon.stop()
  await pass(700)
  await daemon.start()
  await holds(() => daemon.asked.length === 20)
  expect(all.flatMap(({ faults }) => faults)).toEqual([])
})

test('a signal ends a subscription', async () => {
  const daemon = await daemonWith(generous)
  const client = clientOf(daemon)
  const tokens: string[] = []
  const stop = new AbortController()
  client.subscribe(({ accessToken }) => void tokens.push(accessToken), { signal: stop.signal })
  await holds(() => tokens.length === 1)
  stop.abort()
  daemon.publish('token.changed', tokenFields('token-2'))
  await client.get()
  client.subscribe(() => tokens.push('never'), { signal: stop.signal })
  expect(tokens).toEqual(['token-1'])
  const { signal } = new AbortController()
  client.subscribe(() => undefined, { signal })
  client.close()
  for (const ended of [stop.signal, signal]) expect(getEventListeners(ended, 'abort')).toEqual([])
})

test('a subscription that finds no daemon waits for it', async () => {
  const daemon = await daemonWith(generous)
  await daemon.stop()
  const { tokens, faults } = subscribed(clientOf(daemon))
  await holds(() => faults.length === 1)
  await daemon.start()
  await holds(() => tokens.length === 1)
  expect(faults).toEqual(['daemon-unreachable', 'over'])
})

test('a fault does not end the subscription; each cause and its end are told once', async () => {
  const daemon = await daemonWith(({ answer }) => answer('fault', { code: 'no-token-yet', message: 'Wait.' }))
  const { tokens, faults } = subscribed(clientOf(daemon))
  await holds(() => faults.length === 1)
  for (const reason of ['network', 'network', 'timeout'])
    daemon.publish('fault', { code: 'no-token-yet', message: 'Wait.', reason })
  daemon.publish('token.changed', tokenFields('token-1'))
  await holds(() => tokens.length === 1)
  daemon.publish('token.changed', tokenFields('token-2'))
  await holds(() => tokens.length === 2)
  expect(faults).toEqual([...Array.from({ length: 3 }, () => 'no-token-yet'), 'over'])
})

test('a notification without a token is none of a token', async () => {
  const daemon = await daemonWith(generous)
  const { tokens } = subscribed(clientOf(daemon))
  await holds(() => tokens.length === 1)
  const { accessToken: _, ...described } = tokenFields('token-2')
  daemon.publish('token.changed', described)
  daemon.publish('token.changed', tokenFields('token-3'))
  await holds(() => tokens.includes('token-3 ready'))
  expect(tokens).toEqual(['token-1 ready', 'token-3 ready'])
})

test('what a listener throws is the program’s own, and the subscription goes on', async () => {
  const daemon = await daemonWith(generous)
  const uncaught: unknown[] = []
  const others = process.listeners('uncaughtException')
  process.removeAllListeners('uncaughtException')
  process.on('uncaughtException', (error) => uncaught.push(error))
  onTestFinished(() => {
    process.removeAllListeners('uncaughtException')
    for (const other of others) process.on('uncaughtException', other)
  })
  const tokens: string[] = []
  clientOf(daemon).subscribe(({ accessToken }) => {
    tokens.push(accessToken)
    throw new Error('listener')
  })
  await holds(() => uncaught.length === 1)
  daemon.publish('token.changed', tokenFields('token-2'))
  await holds(() => uncaught.length === 2)
  expect(tokens).toEqual(['token-1', 'token-2'])
  expect(daemon.connections.made).toBe(1)
})

test('no listener is called after its end, also where the call is already due', async () => {
  const daemon = await daemonWith(generous)
  const client = clientOf(daemon)
  const calls: string[] = []
  const end = client.subscribe(() => {
    calls.push('first')
    endSecond()
  })
  const endSecond = client.subscribe(() => void calls.push('second'))
  await holds(() => calls.length > 0)
  daemon.publish('token.changed', tokenFields('token-2'))
  await holds(() => calls.length > 1)
  expect(calls).toEqual(['first', 'first'])
  end()
  const late = client.subscribe(() => void calls.push('late'))
  late()
  await client.get()
  expect(calls).toEqual(['first', 'first'])
})

test('close ends the listeners, and a closed client takes none, and asks nothing', async () => {
  const daemon = await daemonWith(generous)
  const client = clientOf(daemon)
  const { tokens, faults } = subscribed(client)
  await holds(() => tokens.length === 1)
  client.close()
  await holds(() => daemon.connections.open === 0)
  expect([tokens.length, faults.length]).toEqual([1, 0])
  expect(() => client.subscribe(() => undefined)).toThrow(/was closed/)
  expect(await codeOf(client.status())).toBe('closed')
  await clientOf(daemon).get()
  expect(daemon.connections.made).toBe(2)
})

test('a subscription that is denied over and over comes back ever more rarely', async () => {
  const daemon = await daemonWith(({ answer, cut }) => {
    answer('fault', { code: 'denied', message: 'No.' })
    setImmediate(cut)
  })
  const beganAt = performance.now()
  const { faults } = subscribed(clientOf(daemon))
  await holds(() => daemon.connections.made === 6)
  // At least half of 50, 100, and three times 200 ms.
  expect(performance.now() - beganAt).toBeGreaterThan(370)
  expect(faults).toEqual(['denied'])
})
