import { createServer, type Socket } from 'node:net'
import { join } from 'node:path'
import { expect, test } from 'vitest'
import { daemonWith, generous } from '../support/client-world.ts'
import { commandWorld, hourToken } from '../support/daemon-world.ts'
import { listening } from '../support/listening.ts'
import { runCli } from '../support/run-cli.ts'
import { granting } from '../support/service.ts'
import { tempDirectory } from '../support/temp-directory.ts'
import { expectUntil } from '../support/until.ts'

test('prints the token in the format that is asked for, and nothing else', async () => {
  const token = hourToken()
  const { cli } = await commandWorld({ answer: granting(token) })
  await cli(['token'])
  const printed = async (...words: string[]): Promise<string> => {
    const { status, stdout, stderr } = await cli(['token', ...words])
    expect({ status, stderr }).toEqual({ status: 0, stderr: '' })
    return stdout
  }
  // More life than any token has: the freshest is printed.
  expect(await printed('--min-valid', '24h', '--wait', '0s')).toBe(`${token}\n`)
  expect(await printed('--format', 'raw')).toBe(`${token}\n`)
  expect(await printed('--format=header')).toBe(`Authorization: Bearer ${token}\n`)
  expect(await printed('--format', 'env')).toBe(`KYC_ACCESS_TOKEN=${token}\n`)
  expect(JSON.parse(await printed('--format', 'json'))).toMatchObject({ accessToken: token, generation: 1 })
})

test.each([
  ['expired', 75],
  ['no-token-yet', 75],
  ['busy', 75],
  ['account-inactive', 77],
  ['denied', 77],
  ['bad-request', 64],
])('the fault %s ends it with %d', async (code, status) => {
  const message = 'The sentence of the daemon.'
  const daemon = await daemonWith(({ answer }) => answer('fault', { code, message }))
  const ended = await runCli(['token', '--wait', '0s', '--socket', daemon.path])
  expect(ended).toEqual({ status, signal: null, stdout: '', stderr: `${message}\n` })
})

test('with --wait it also waits for a daemon that has not been started yet', async () => {
  const path = join(await tempDirectory(), 'ipc.sock')
  const tries: Socket[] = []
  const before = createServer((socket) => void tries.push(socket.destroy()))
  await listening(before, path)
  const ended = runCli(['token', '--wait', '20s', '--min-valid', '30m', '--socket', path])
  await expectUntil('a first try', () => tries.length > 0)
  before.close()
  await daemonWith(generous, path)
  expect(await ended).toMatchObject({ status: 0, stdout: 'token-1\n' })
})
