// The contract's numbers, on a fake clock where there is one; many calls at once, and a busy program.
import { getEventListeners } from 'node:events'
import { join } from 'node:path'
import { describe, expect, onTestFinished, test, vi } from 'vitest'
import { createReconnectingConnection } from '../../src/client/connection.ts'
import type { ClientToken, TokenClient } from '../../src/client/index.ts'
import { clientOf, codeOf, daemonWith, generous, pass, turns, useFakeTime } from '../support/client-world.ts'
import { commandWorld, hourToken } from '../support/daemon-world.ts'
import { startScriptedDaemon, tokenFields, type Asking } from '../support/scripted-daemon.ts'
import { granting } from '../support/service.ts'
import { tempDirectory } from '../support/temp-directory.ts'
import { holds } from '../support/until.ts'

/** Keeps the program from its loop. */
function beBusy(ms: number): void {
  const untilMs = performance.now() + ms
  while (performance.now() < untilMs);
}

describe('on a fake clock', () => {
  test.each([{ waitSeconds: 60 }, { waitSeconds: 0 }, {}])(
    'a daemon that is silent costs get(%j) 250 ms, no more and no less, until it answers again',
    async (options) => {
      useFakeTime()
      const daemon = await daemonWith((asking) => void (daemon.asked.length === 2 || generous(asking)))
      const client = clientOf(daemon)
      await client.get()
      const ended = vi.fn<() => void>()
      const given = client.get(options).finally(ended)
      // Not `holds`, which advances the fake clock.
      while (daemon.asked.length < 2) await turns()
      await vi.advanceTimersByTimeAsync(249)
      await turns()
      expect(ended).not.toHaveBeenCalled()
      await vi.advanceTimersByTimeAsync(1)
      await turns()
      expect(ended).toHaveBeenCalled()
      expect(await given).toMatchObject({ accessToken: 'token-1', cached: true })
      expect(await client.get()).not.toHaveProperty('cached')
    },
  )

  test.each([0, 0.999_999])(
    'any number of calls connects often enough to be served within 250 ms (chance %d)',
    async (chance) => {
      useFakeTime()
      vi.spyOn(Math, 'random').mockReturnValue(chance)
      const end = new AbortController()
      onTestFinished(() => end.abort())
      const connectsAtMs: number[] = []
      const findPath = (): string => {
        connectsAtMs.push(Date.now())
        throw new Error('none')
      }
      const connection = createReconnectingConnection(findPath, (frame) => frame, end.signal)
      const open = () =>
        connection.open({
          frame: () => ({ type: 'status.get', data: {} }),
          onAnswer: () => undefined,
          onDisconnect: () => true,
        })
      for (let count = 0; count < 1_000; count += 1) open()
      for (let ms = 0; ms < 3_000; ms += 10) {
        // Neither those that wait nor those that come change the pace.
        open()
        await pass(10, { stepMs: 10 })
      }
      const gaps = connectsAtMs.slice(1).map((atMs, index) => atMs - connectsAtMs[index]!)
      expect(Math.max(...gaps)).toBeLessThanOrEqual(250)
      // Nor much oftener, whatever the number of calls.
      expect(connectsAtMs.length).toBeLessThan(chance === 0 ? 40 : 22)
      expect(Math.max(...gaps)).toBeGreaterThan(chance === 0 ? 62 : 125)
    },
  )

  test('a wait is one wait, however late the daemon comes, and ends with its own fault', async () => {
    useFakeTime()
    const path = join(await tempDirectory(), 'ipc.sock')
    const client = clientOf({ path })
    const failed = client.get({ waitSeconds: 10 })
    const code = codeOf(failed)
    await pass(4_000)
    const daemon = await startScriptedDaemon(path, () => undefined)
    onTestFinished(() => daemon.stop())
    await pass(500)
    await holds(() => daemon.asked.length === 1)
    await daemon.stop()
    await pass(2_000)
    await daemon.start()
    await pass(500)
    await holds(() => daemon.asked.length === 2)
    const waits = daemon.asked.map(({ data }) => Number(data['waitSeconds']))
    expect(waits[0]).toBeLessThanOrEqual(6.1)
    expect(waits[0]).toBeGreaterThan(5)
    expect(waits[1]).toBeLessThanOrEqual(3.6)
    expect(waits[1]).toBeGreaterThan(2.5)
    await pass(3_000)
    daemon.publish('none', {})
    await pass(500)
    expect(await code).toBe('timeout')
  })
})

describe('a program that is busy for longer than its wait has its answer', () => {
  test.each([
    ['get', (client: TokenClient) => client.get({ waitSeconds: 0 })],
    ['status', (client: TokenClient) => client.status()],
  ])(
    '%s, on a new and on an old connection',
    async (name, call) => {
      const { daemon } = await commandWorld()
      await clientOf({ path: daemon.ipcPath }).get()
      const client = clientOf({ path: daemon.ipcPath })
      for (let round = 0; round < 2; round += 1) {
        const given = call(client)
        beBusy(name === 'get' ? 1_000 : 5_500)
        expect(await given).not.toHaveProperty('cached')
      }
    },
    30_000,
  )
})

describe('many at once', () => {
  test('ten thousand calls in one tick are answered, on one connection', async () => {
    const { daemon } = await commandWorld()
    const client = clientOf({ path: daemon.ipcPath })
    await client.get()
    const calls: Promise<unknown>[] = Array.from({ length: 5_000 }, () => client.status())
    for (let index = 0; index < 5_000; index += 1)
      calls.push(client.get({ minValidSeconds: index / 10, waitSeconds: 0 }))
    expect((await Promise.all(calls)).length).toBe(10_000)
    expect((await client.status()).clients.ipc.connections).toBe(1)
  }, 30_000)

  test('more than 16 different waits are queued: all have the token, and nobody else waits', async () => {
    const { daemon, service } = await commandWorld({ answer: { status: 503 } })
    const client = clientOf({ path: daemon.ipcPath })
    const waits = Array.from({ length: 100 }, (_, index) =>
      client.get({ minValidSeconds: index, waitSeconds: 60 }),
    )
    const short = Array.from({ length: 30 }, (_, index) =>
      codeOf(client.get({ minValidSeconds: index, waitSeconds: 0.5 })),
    )
    expect(new Set(await Promise.all(short))).toEqual(new Set(['no-token-yet']))
    expect(await codeOf(client.get({ waitSeconds: 0 }))).toBe('no-token-yet')
    expect((await client.status()).clients.ipc.connections).toBe(1)
    const token = hourToken()
    service.answer(granting(token))
    daemon.process.kill('SIGUSR2')
    expect(new Set((await Promise.all(waits)).map(({ accessToken }) => accessToken))).toEqual(
      new Set([token]),
    )
  })

  test('a wait leaves its place when the daemon has answered, and a closed client waits for none', async () => {
    const waiting: Asking[] = []
    const daemon = await daemonWith((asking) => {
      if (Number(asking.data['waitSeconds']) > 0) waiting.push(asking)
    })
    const client = clientOf(daemon)
    const stop = new AbortController()
    const waits = Array.from({ length: 20 }, (_, index) =>
      client
        .get({ minValidSeconds: index, waitSeconds: 60, signal: index < 16 ? stop.signal : null })
        .catch((error: string | { code: string }) => (typeof error === 'string' ? error : error.code)),
    )
    await holds(() => daemon.asked.length === 20)
    expect(waiting).toHaveLength(16)
    stop.abort('aborted')
    await waits[0]
    // An aborted one waits on at the daemon, which would not take a 17th.
    expect(await codeOf(client.get({ minValidSeconds: 99, waitSeconds: 0.1 }))).toBe('timeout')
    expect(waiting).toHaveLength(16)
    client.close()
    expect(new Set(await Promise.all(waits))).toEqual(new Set(['aborted', 'closed']))
  })
})

describe('calls that share a signal, a queue or an answer', () => {
  /**
   * A daemon at which waits stay; `give` answers them, and all that comes later, with this token. `next`: it has
   * this one right after it has answered that there is none.
   */
  async function fullDaemon({ next }: { next?: string } = {}) {
    let token: string | undefined
    const waiting: Asking[] = []
    const daemon = await daemonWith((asking) => {
      if (token !== undefined) return asking.answer('token.result', tokenFields(token))
      if (Number(asking.data['waitSeconds']) > 0) return void waiting.push(asking)
      asking.answer('fault', { code: 'no-token-yet', message: 'Wait.' })
      if (next !== undefined) give(next)
    })
    const client = clientOf(daemon)
    const stop = new AbortController()
    const waits = Array.from({ length: 16 }, (_, minValidSeconds) =>
      client.get({ minValidSeconds, waitSeconds: 60, signal: stop.signal }).catch(String),
    )
    await holds(() => waiting.length === 16)
    function give(text: string): void {
      token = text
      for (const { answer } of waiting) answer('token.result', tokenFields(text))
    }
    return { client, daemon, waits, stop, give }
  }

  test('a wait that is queued behind waits of nobody has the token when it is there', async () => {
    const { client, daemon, waits, stop, give } = await fullDaemon()
    stop.abort('gone')
    await Promise.all(waits)
    const queued = client.get({ minValidSeconds: 99, waitSeconds: 60 })
    await holds(() => daemon.asked.length === 17)
    give('token-1')
    const givenAtMs = performance.now()
    expect((await queued).accessToken).toBe('token-1')
    expect(performance.now() - givenAtMs).toBeLessThan(30_000)
  })

  test('it also has one that comes with the answer for which it is queued', async () => {
    const { client, waits, stop } = await fullDaemon({ next: 'token-1' })
    stop.abort('gone')
    await Promise.all(waits)
    const askedAtMs = performance.now()
    expect((await client.get({ minValidSeconds: 99, waitSeconds: 60 })).accessToken).toBe('token-1')
    expect(performance.now() - askedAtMs).toBeLessThan(30_000)
  })

  test('a call that comes after the close of a client with a full queue is closed at once', async () => {
    const { client, waits } = await fullDaemon()
    client.close()
    await Promise.all(waits)
    const closedAtMs = performance.now()
    expect(await codeOf(client.get({ waitSeconds: 60 }))).toBe('closed')
    expect(performance.now() - closedAtMs).toBeLessThan(30_000)
  })

  test('any number of calls and subscriptions is one listener of their signal', async () => {
    const spy = vi.spyOn(EventTarget.prototype, 'addEventListener')
    onTestFinished(() => spy.mockRestore())
    const daemon = await daemonWith(() => undefined)
    const { signal } = new AbortController()
    const client = clientOf(daemon)
    for (let index = 0; index < 100; index += 1) {
      void codeOf(client.status({ signal }))
      void codeOf(client.get({ signal, minValidSeconds: index }))
      client.subscribe(() => undefined, { signal })
    }
    await holds(() => daemon.asked.length > 0)
    const counts = spy.mock.contexts.map((target) => getEventListeners(target as EventTarget, 'abort').length)
    expect(getEventListeners(signal, 'abort')).toHaveLength(1)
    // The client’s own signal has one for its connection and one for its subscriptions, too.
    expect(Math.max(...counts)).toBeLessThanOrEqual(3)
  })

  test('what a caller does to its token changes nobody else’s', async () => {
    const daemon = await daemonWith(generous)
    const client = clientOf(daemon)
    const seen: string[] = []
    const spoil = (token: ClientToken): void => {
      seen.push(token.accessToken)
      token.accessToken = 'spoilt'
      ;(token.refusedBy as number[]).push(200)
    }
    for (let count = 0; count < 2; count += 1) onTestFinished(client.subscribe(spoil))
    await holds(() => seen.length === 2)
    const [one, two] = await Promise.all([client.get(), client.get()])
    spoil(one)
    const { token, refusedBy } = await client.authorize()
    spoil(token)
    expect(refusedBy).toEqual([401])
    spoil(two)
    await daemon.stop()
    spoil(await client.get())
    expect(await client.get()).toMatchObject({ ...tokenFields('token-1'), cached: true })
    expect(seen).toEqual(Array.from({ length: 6 }, () => 'token-1'))
  })
})

test('null is no signal, and other arguments that are wrong are bad requests, which the daemon never sees', async () => {
  const daemon = await daemonWith(({ answer }: Asking) =>
    answer('fault', { code: 'account-inactive', message: 'Act.' }),
  )
  const client = clientOf(daemon, { signal: null })
  const calls = [
    client.get({ signal: null }),
    client.get(null as never),
    client.authorize({ signal: null }),
    client.authorize(null as never),
    client.fetch('http://127.0.0.1:1', { signal: null }),
    client.fetch('http://127.0.0.1:1', null as never),
    client.status({ signal: null }),
    client.refresh(null as never),
    client.reject('token-1', { signal: null }),
  ]
  for (const call of calls) expect(await codeOf(call)).toBe('account-inactive')
  const { length } = daemon.asked
  const bad: [Promise<unknown>, string][] = [
    [client.get({ waitSeconds: 61 }), 'waitSeconds'],
    [client.get({ waitSeconds: '5' as never }), 'waitSeconds'],
    [client.get({ minValidSeconds: Number.NaN }), 'minValidSeconds'],
    [client.get({ minValidSeconds: null as never }), 'minValidSeconds'],
    [client.get({ minValidSeconds: 86_401 }), 'minValidSeconds'],
    [client.get({ notFingerprint: null as never }), 'notFingerprint'],
    [client.get({ notFingerprint: 'none' }), 'notFingerprint'],
    [client.get({ signal: 5 as never }), 'signal'],
    // Of a polyfill that is older than Node 18.
    [client.get({ signal: Object.assign(new EventTarget(), { aborted: false }) as never }), 'signal'],
    [client.reject(null as never), 'fingerprint'],
  ]
  for (const [call, name] of bad) {
    const message = expect.stringContaining(name) as string
    await expect(call).rejects.toMatchObject({ code: 'bad-request', message })
  }
  expect(daemon.asked).toHaveLength(length)
  client.subscribe(() => undefined, { signal: null })()
  client.subscribe(() => undefined, null as never)()
  expect(() => client.subscribe(null as never)).toThrow('must be functions')
  expect(() => client.subscribe(() => undefined, { onFault: 5 as never })).toThrow('must be functions')
})

test('status and reject end with their signal', async () => {
  const daemon = await daemonWith(() => undefined)
  const client = clientOf(daemon)
  const stop = new AbortController()
  const { signal } = stop
  const calls = [client.status({ signal }), client.reject({ fingerprint: '0123456789abcdef' }, { signal })]
  const ended = calls.map((call) => call.catch(String))
  stop.abort('enough')
  expect(await Promise.all(ended)).toEqual(['enough', 'enough'])
})
