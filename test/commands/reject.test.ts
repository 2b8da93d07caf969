import { createHash } from 'node:crypto'
import { expect, test } from 'vitest'
import { daemonWith, tokenFields, type ScriptedDaemon } from '../support/client-world.ts'
import { runCli } from '../support/run-cli.ts'

const answering = (result: object): Promise<ScriptedDaemon> =>
  daemonWith(({ type, answer }) => {
    if (type !== 'token.reject') answer('token.result', tokenFields('token-1'))
    else answer('reject.result', result)
  })
const fingerprint = createHash('sha256').update('token-1').digest('hex').slice(0, 16)

test('reports the current token, that of a fingerprint, or one on stdin; always by fingerprint', async () => {
  const daemon = await answering({ verdict: 'refreshing' })
  const reject = (args: string[], input?: string) =>
    runCli(['reject', '--socket', daemon.path, ...args], input === undefined ? {} : { input })
  for (const ended of [await reject([]), await reject([fingerprint]), await reject(['-'], 'token-1\n')])
    expect(ended).toMatchObject({ status: 0, stdout: expect.stringMatching(/^refreshing: /) as string })
  const reports = daemon.asked.filter(({ type }) => type === 'token.reject')
  expect(reports.map(({ data }) => data['fingerprint'])).toEqual([fingerprint, fingerprint, fingerprint])
  expect(JSON.stringify(reports)).not.toContain('token-1')
})

test.each([
  ['held', 0, { retryAfterSeconds: 20 }, /^held: .* in 20 s/],
  ['refused', 77, {}, /^refused: .*kyc-tokend status/],
])('says what %s means, and ends with %d', async (verdict, status, more, sentence) => {
  const daemon = await answering({ verdict, ...more })
  const ended = await runCli(['reject', fingerprint, '--socket', daemon.path])
  expect(ended).toMatchObject({ status, stdout: expect.stringMatching(sentence) as string })
})

test.each(['', 'x'.repeat(20_000), 'secret secret', 'Bearer secret', 'secret\nsecret'])(
  'what cannot be a token on stdin is a usage error and not echoed',
  async (input) => {
    const daemon = await answering({ verdict: 'refreshing' })
    const { status, stderr } = await runCli(['reject', '-', '--socket', daemon.path], { input })
    expect(status).toBe(64)
    expect(stderr).toMatch(/^There is no token on stdin: give the token alone, .*\n$/)
    expect(stderr).not.toContain('secret')
    expect(daemon.asked.filter(({ type }) => type === 'token.reject')).toEqual([])
  },
)
