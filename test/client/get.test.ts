import { getEventListeners } from 'node:events'
import { createServer } from 'node:http'
import { chmodSync, mkdirSync, statSync } from 'node:fs'
import { join } from 'node:path'
import { setImmediate } from 'node:timers/promises'
import { expect, onTestFinished, test, vi } from 'vitest'
import { asStranger, clientOf, codeOf, daemonWith, generous, useFakeTime } from '../support/client-world.ts'
import { tokenFields, type Asking } from '../support/scripted-daemon.ts'
import { tempDirectory } from '../support/temp-directory.ts'
import { holds } from '../support/until.ts'

const root = new URL('../..', import.meta.url).pathname
const isStrangerAble = asStranger([process.execPath, '--version']).status === 0
const isSystemSocketThere = statSync('/run/kyc-tokend', { throwIfNoEntry: false }) !== undefined

/** The output of a program that imports TokenClient, run as a user without rights. */
function runAsStranger(program: string, env: readonly string[] = []): string {
  const source = `import { TokenClient } from '${root}src/client/index.ts'\n${program}`
  const unset = ['KYC_TOKEND_SOCKET=', 'KYC_TOKEND_ACCOUNT=']
  const node = [process.execPath, '--input-type=module', '-e', source]
  const { status, stdout } = asStranger(['env', ...unset, ...env, ...node])
  expect(status).toBe(0)
  return stdout
}

test('get asks for what its options say, and gives the fields of the answer without the id', async () => {
  const daemon = await daemonWith(generous)
  const wanted = { minValidSeconds: 60, notFingerprint: '0123456789abcdef', waitSeconds: 2 }
  expect(await clientOf(daemon, { name: 'billing' }).get(wanted)).toEqual(tokenFields('token-1'))
  expect(daemon.asked[0]).toMatchObject({ type: 'token.get', data: { ...wanted, client: 'billing' } })
})

test('a fault is an error with its code, sentence and reason', async () => {
  const fault = { code: 'no-token-yet', message: 'Wait.', reason: 'network' }
  const daemon = await daemonWith(({ answer }) => answer('fault', fault))
  const failed = clientOf(daemon).get({ waitSeconds: 0 })
  await expect(failed).rejects.toMatchObject({ name: 'TokenClientError', ...fault })
})

test('many calls share one connection, and each gets its own answer whatever the order', async () => {
  const waiting: Asking[] = []
  const daemon = await daemonWith((asking) => {
    waiting.push(asking)
    if (waiting.length < 20) return
    for (const { answer, data } of waiting.toReversed())
      answer('token.result', tokenFields(String(data['client']), { generation: data['minValidSeconds'] }))
  })
  const client = clientOf(daemon)
  const results = await Promise.all(
    Array.from({ length: 20 }, (_, index) => client.get({ minValidSeconds: index })),
  )
  expect(results.map(({ generation }) => generation)).toEqual(Array.from({ length: 20 }, (_, index) => index))
  expect(daemon.connections.made).toBe(1)
})

test('an answer may come byte by byte', async () => {
  const writeAll = async ({ data, write }: Asking): Promise<void> => {
    const answer = { id: data['id'], ...tokenFields('tökén') }
    const text = `${JSON.stringify({ type: 'token.result', data: answer })}\f`
    for (const byte of Buffer.from(text)) {
      write(Buffer.from([byte]))
      // The client reads it.
      await setImmediate()
    }
  }
  const daemon = await daemonWith((asking) => void writeAll(asking))
  expect((await clientOf(daemon).get()).accessToken).toBe('tökén')
})

test('calls that ask for the same share one request, which ends with the last of them', async () => {
  const daemon = await daemonWith(() => undefined)
  const client = clientOf(daemon)
  const stops = [new AbortController(), new AbortController()]
  const calls = stops.map(({ signal }) => client.get({ signal }).catch(String))
  await holds(() => daemon.asked.length === 1)
  stops[0]?.abort('first')
  expect(await calls[0]).toBe('first')
  await expect(client.get({ signal: stops[0]!.signal })).rejects.toBe('first')
  const third = client.get()
  stops[1]?.abort('second')
  expect(await calls[1]).toBe('second')
  expect(daemon.asked).toHaveLength(1)
  client.close()
  await expect(third).rejects.toMatchObject({ code: 'closed' })
  const again = clientOf(daemon)
  await expect(again.get({ signal: AbortSignal.timeout(100) })).rejects.toMatchObject({
    name: 'TimeoutError',
  })
  void again.get().catch(() => undefined)
  await holds(() => daemon.asked.length === 3)
})

test('a socket without a daemon is an error at once, with what to do: of an account with its unit', async () => {
  const path = join(await tempDirectory(), 'none.sock')
  const startedMs = performance.now()
  await expect(clientOf({ path }).get()).rejects.toMatchObject({
    code: 'daemon-unreachable',
    message: expect.stringMatching(/none\.sock.*systemctl start kyc-tokend.*kyc-tokend run/) as string,
  })
  expect(performance.now() - startedMs).toBeLessThan(2_000)
  const ofAccount = clientOf({ path: '/run/kyc-tokend/accounts/eu/ipc.sock' }).get()
  await expect(ofAccount).rejects.toThrow('start it with `sudo systemctl start kyc-tokend@eu`.')
})

test.skipIf(!isStrangerAble)(
  'a socket that may not be opened is denied, and says which group helps',
  async () => {
    const daemon = await daemonWith(generous)
    // To its owner, who is the stranger where no other user can be taken, it is closed as well.
    chmodSync(daemon.path, process.getuid?.() === 0 ? 0o600 : 0o000)
    chmodSync(join(daemon.path, '..'), 0o755)
    const stdout = runAsStranger(`await new TokenClient({ socketPath: '${daemon.path}' })
    .get({ waitSeconds: 60 }).catch((error) => console.log(error.code, error.message))`)
    expect(stdout).toMatch(/^denied .*kyc-token/)
  },
)

test.skipIf(!isStrangerAble || isSystemSocketThere)(
  'the socket of the person is denied, and not passed over, where it may not even be seen',
  async () => {
    const runtime = await tempDirectory()
    chmodSync(runtime, 0o755)
    mkdirSync(join(runtime, 'kyc-tokend'), { mode: 0o700 })
    const program = 'await new TokenClient().get().catch((error) => console.log(error.code))'
    const code = process.getuid?.() === 0 ? 'denied' : 'daemon-unreachable'
    expect(runAsStranger(program, [`XDG_RUNTIME_DIR=${runtime}`])).toBe(`${code}\n`)
  },
)

test.each([
  [{ waitSeconds: 0 }, 250],
  [{}, 10_000],
])('an answer that does not come to get(%j) is a timeout after %i ms and 250 more', async (options, ms) => {
  useFakeTime()
  const daemon = await daemonWith(() => undefined)
  const ended = vi.fn<() => void>()
  const code = codeOf(clientOf(daemon).get(options)).finally(ended)
  await holds(() => daemon.asked.length === 1)
  await vi.advanceTimersByTimeAsync(ms)
  expect(ended).not.toHaveBeenCalled()
  await vi.advanceTimersByTimeAsync(250)
  expect(await code).toBe('timeout')
})

test('a socket that speaks HTTP is an error at once, with the name of the other one', async () => {
  const path = join(await tempDirectory(), 'http.sock')
  const server = createServer()
  await new Promise<void>((resolve) => server.listen(path, resolve))
  onTestFinished(() => void server.close())
  await expect(clientOf({ path }).get({ waitSeconds: 60 })).rejects.toMatchObject({
    code: 'bad-request',
    message: `The socket ${path} speaks HTTP: name ipc.sock, which is beside http.sock.`,
  })
})

test('nothing of a call is left on its signal', async () => {
  const daemon = await daemonWith(generous)
  const client = clientOf(daemon)
  const { signal } = new AbortController()
  const { fingerprint } = await client.get({ signal })
  await daemon.stop()
  await codeOf(client.get({ signal, waitSeconds: 0, notFingerprint: fingerprint }))
  client.close()
  await codeOf(client.get({ signal }))
  expect(getEventListeners(signal, 'abort')).toEqual([])
})

test('a frame without end loses the connection and not the memory', async () => {
  let isFirst = true
  const daemon = await daemonWith((asking) => {
    if (!isFirst) return generous(asking)
    isFirst = false
    asking.write('x'.repeat(3 * 1024 * 1024))
  })
  const client = clientOf(daemon)
  expect((await client.get()).accessToken).toBe('token-1')
  expect(daemon.connections.made).toBe(2)
})

test('answers to no request and of unknown types are passed over', async () => {
  const daemon = await daemonWith((asking) => {
    asking.write('{"type":"token.result","data":{"id":"none"}}\f{"type":"news","data":{"id":7}}\f')
    asking.answer('news', {})
    generous(asking)
  })
  expect((await clientOf(daemon).get()).accessToken).toBe('token-1')
})

test('a rejected token does not travel, its fingerprint does', async () => {
  const daemon = await daemonWith(({ answer }) => answer('reject.result', { verdict: 'refreshing' }))
  expect(await clientOf(daemon).reject('token-1')).toEqual({ verdict: 'refreshing' })
  await clientOf(daemon).reject({ fingerprint: '0123456789abcdef' })
  expect(daemon.asked.map(({ data }) => data['fingerprint'])).toEqual([
    tokenFields('token-1')['fingerprint'],
    '0123456789abcdef',
  ])
  expect(JSON.stringify(daemon.asked)).not.toContain('token-1')
})
