// get, reject and status: from memory, by asking, and while the daemon is away.
import { getEventListeners } from 'node:events'
import { expect, onTestFinished, test, vi } from 'vitest'
import type { TokenSource } from '../../src/client/index.ts'
import {
  clientOf,
  codeOf,
  daemonWith,
  generous,
  pass,
  turns,
  useFakeTime,
  tokenFields,
  type ScriptedDaemon,
} from '../support/client-world.ts'
import { holds } from '../support/until.ts'

const token1 = tokenFields('token-1')

test('the first get subscribes, by the name of the program; further calls are answered from memory', async () => {
  const daemon = await daemonWith(generous)
  const client = clientOf(daemon, { name: 'billing' })
  const token = await client.get()
  expect(token).toEqual(token1)
  // Nobody can change what others are given.
  expect(Object.isFrozen(token)).toBe(true)
  const rest = await Promise.all(Array.from({ length: 1_000 }, () => client.get({ minValidSeconds: 60 })))
  expect(new Set(rest)).toEqual(new Set([token]))
  const data = { id: expect.any(String) as string, client: 'billing' }
  expect(daemon.asked).toEqual([{ type: 'token.subscribe', data }])
})

test('a token in memory that is not good enough is asked for, once for all callers who wish the same', async () => {
  const daemon = await daemonWith(({ type, answer }) => {
    if (type === 'token.subscribe')
      answer('token.result', tokenFields('token-1', { expiresAt: inSeconds(30) }))
    // The freshest is the answer, also where it lives shorter than it should.
    else answer('token.result', tokenFields('token-2', { expiresAt: inSeconds(50) }))
  })
  const client = clientOf(daemon, { name: 'billing' })
  await client.get()
  const wish = { minValidSeconds: 60, waitSeconds: 2 }
  const inAHurry = { ...wish, waitSeconds: 0 }
  const tokens = await Promise.all([client.get(wish), client.get(wish), client.get(inAHurry)])
  expect(tokens.map(({ accessToken }) => accessToken)).toEqual(['token-2', 'token-2', 'token-2'])
  const [, { type, data } = {}, ...more] = daemon.asked
  expect([type, data?.['minValidSeconds'], data?.['client']]).toEqual(['token.get', 60, 'billing'])
  expect(data?.['waitSeconds']).toBeCloseTo(2, 1)
  expect(more).toMatchObject([{ data: { minValidSeconds: 60, waitSeconds: 0 } }])
  await client.get(wish)
  expect(daemon.asked).toHaveLength(4)
})

test('a wait for another token ends with the next one, or after its time with the same one', async () => {
  const daemon = await daemonWith(generous)
  const client = clientOf(daemon)
  const { fingerprint } = await client.get()
  const { signal } = new AbortController()
  const same = await client.get({ notFingerprint: fingerprint, waitSeconds: 0.1, signal })
  expect(same.fingerprint).toBe(fingerprint)
  await turns()
  expect(getEventListeners(signal, 'abort')).toEqual([])
  const other = client.get({ notFingerprint: fingerprint })
  daemon.publish('token.changed', tokenFields('token-2'))
  expect((await other).accessToken).toBe('token-2')
})

test('a get waits for a first token, and is rejected with the fault of the daemon after its time', async () => {
  const withoutToken = { code: 'no-token-yet', message: 'Wait.', reason: 'network' }
  const daemon = await daemonWith(({ answer }) => answer('fault', withoutToken))
  const client = clientOf(daemon)
  const failed = client.get({ waitSeconds: 0 })
  await expect(failed).rejects.toMatchObject({ name: 'TokenClientError', ...withoutToken })
  const got = client.get()
  daemon.publish('token.changed', token1)
  expect((await got).accessToken).toBe('token-1')
  const inactive = { code: 'account-inactive', message: 'Contact them.' }
  const refused = clientOf(await daemonWith(({ answer }) => answer('fault', inactive)))
  expect(await codeOf(refused.get({ waitSeconds: 60 }))).toBe('account-inactive')
})

test('a time that is none, or too long, is a mistake of the caller', async () => {
  const client = clientOf({ path: '/none' })
  for (const options of [{ minValidSeconds: -1 }, { minValidSeconds: 86_401 }, { waitSeconds: Number.NaN }])
    expect(await codeOf(client.get(options))).toBe('bad-request')
  await expect(client.get({ waitSeconds: 61 })).rejects.toThrow(/^waitSeconds must be .* from 0 to 60/)
})

test('a socket without a daemon is an error at once, with what to do; an explicit wait is also for that', async () => {
  const daemon = await daemonWith(generous)
  await daemon.stop()
  const begunAt = performance.now()
  const client = clientOf(daemon)
  await expect(client.get()).rejects.toThrow(/ipc\.sock.*systemctl start kyc-tokend/)
  expect(performance.now() - begunAt).toBeLessThan(5_000)
  const got = client.get({ waitSeconds: 60 })
  expect(await codeOf(client.status())).toBe('daemon-unreachable')
  await daemon.start()
  expect((await got).accessToken).toBe('token-1')
})

test.each<[string, (client: TokenSource) => Promise<unknown>]>([
  ['denied', async (client) => client.get({ waitSeconds: 60 })],
  ['busy', async (client) => client.status()],
])('the fault %s, which ends the connection, is the error of all calls on it', async (code, call) => {
  let answered = 0
  const daemon = await daemonWith(({ answer }) => {
    if (answered === daemon.connections().made) return
    answered = daemon.connections().made
    answer('fault', { code, message: 'The daemon ends this.' })
    setImmediate(() => daemon.cutAll())
  })
  const client = clientOf(daemon)
  const calls = [call(client), client.status(), client.status()]
  expect(await Promise.all(calls.map(codeOf))).toEqual([code, code, code])
})

test('while the daemon is away the last token is given, as cached, unless it was reported or is too short', async () => {
  const daemon = await daemonWith(({ type, answer }) => {
    if (type === 'token.reject') answer('reject.result', { verdict: 'held', retryAfterSeconds: 30 })
    else answer('token.result', tokenFields('token-1', { expiresAt: inSeconds(600) }))
  })
  const client = clientOf(daemon)
  const { accessToken } = await client.get()
  await stopped(daemon)
  expect(await client.get({ minValidSeconds: 60 })).toMatchObject({ accessToken, cached: true })
  expect(await codeOf(client.get({ minValidSeconds: 601, waitSeconds: 0 }))).toBe('daemon-unreachable')
  await daemon.start()
  await client.reject(accessToken)
  expect(await client.get()).not.toHaveProperty('cached')
  await stopped(daemon)
  expect(await codeOf(client.get({ waitSeconds: 0 }))).toBe('daemon-unreachable')
})

test.each(['the wall clock', 'the clock since the start'])(
  'a token that has ended by %s is given no more',
  async (clock) => {
    onTestFinished(() => void vi.useRealTimers().restoreAllMocks())
    const daemon = await daemonWith(({ answer }) =>
      answer('token.result', tokenFields('token-1', { expiresAt: inSeconds(60) })),
    )
    const client = clientOf(daemon)
    await client.get()
    await stopped(daemon)
    expect(await client.get()).toMatchObject({ cached: true })
    if (clock === 'the wall clock') vi.useFakeTimers({ toFake: ['Date'], now: Date.now() + 61_000 })
    else vi.spyOn(process, 'uptime').mockReturnValue(process.uptime() + 61)
    expect(await codeOf(client.get({ waitSeconds: 0 }))).toBe('daemon-unreachable')
  },
)

test('a daemon that does not answer is a timeout after the wait, at least 5 s', async () => {
  useFakeTime()
  const daemon = await daemonWith(() => undefined)
  const client = clientOf(daemon)
  const begunAt = Date.now()
  const ended = [client.get({ waitSeconds: 0 }), client.status(), client.get()].map(async (call) => {
    const code = await codeOf(call)
    return `${code} after ${Math.round((Date.now() - begunAt) / 1_000)} s`
  })
  await holds(() => daemon.asked.length === 2)
  await pass(12_000, { stepMs: 500 })
  expect(await Promise.all(ended)).toEqual(['timeout after 5 s', 'timeout after 5 s', 'timeout after 10 s'])
})

test('an abort ends a wait with its reason, and leaves nothing on the signal; a close ends every wait', async () => {
  const daemon = await daemonWith(() => undefined)
  const client = clientOf(daemon)
  const stop = new AbortController()
  const { signal } = stop
  const aborted = [client.get({ signal }), client.status({ signal })].map((call) => call.catch(String))
  const notFingerprint = '0123456789abcdef'
  const closed = [client.get(), client.status(), client.get({ notFingerprint })].map(codeOf)
  await holds(() => daemon.asked.length === 3)
  stop.abort('enough')
  expect(await Promise.all(aborted)).toEqual(['enough', 'enough'])
  await expect(client.get({ signal })).rejects.toBe('enough')
  expect(getEventListeners(signal, 'abort')).toEqual([])
  client.close()
  expect(await Promise.all(closed)).toEqual(['closed', 'closed', 'closed'])
  expect(await codeOf(client.status())).toBe('closed')
  expect(() => client.subscribe(() => undefined)).toThrow(/was closed/)
})

test('text that is no frame costs the connection alone; bytes come one by one, and unknown types are ignored', async () => {
  const daemon = await daemonWith(({ data, socket }) => {
    const answer = { id: data['id'], ...tokenFields('tökén') }
    const news = '{"type":"news","data":{"id":7}}\f{"type":"news","data":{}}\f'
    const frames = `${news}${JSON.stringify({ type: 'token.result', data: answer })}\f`
    const isFirst = daemon.connections().made === 1
    for (const byte of Buffer.from(isFirst ? 'HTTP/1.1 400 Bad Request\r\n\f' : frames))
      socket.write(Buffer.from([byte]))
  })
  expect((await clientOf(daemon).get()).accessToken).toBe('tökén')
  expect(daemon.connections().made).toBe(2)
})

test('a daemon that ends connections is asked again at growing distances, and at once after a token', async () => {
  useFakeTime()
  let isBusy = true
  const daemon = await daemonWith((asking) => {
    if (isBusy) asking.answer('fault', { code: 'busy', message: 'Later.' })
    else generous(asking)
  })
  const client = clientOf(daemon)
  const call = client.get({ waitSeconds: 60 })
  await holds(() => daemon.connections().made === 1)
  await pass(10_000)
  const { made, open } = daemon.connections()
  // None is left behind.
  expect(open).toBeLessThanOrEqual(1)
  expect(made).toBeGreaterThan(5)
  expect(made).toBeLessThan(25)
  isBusy = false
  await pass(1_500)
  expect((await call).accessToken).toBe('token-1')
  const before = daemon.connections().made
  daemon.cutAll()
  await holds(() => daemon.connections().open === 0)
  await turns()
  await pass(450)
  expect(daemon.connections().made).toBe(before + 1)
})

/** Stops it, and lets the client see that. */
async function stopped(daemon: ScriptedDaemon): Promise<void> {
  await daemon.stop()
  await turns()
}

function inSeconds(seconds: number): string {
  return new Date(Date.now() + seconds * 1_000).toISOString()
}
