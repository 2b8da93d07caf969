// Tokens that live for seconds: every reader, by file or by socket, always has a good one and never a torn or an expired one.
import { setTimeout as sleep } from 'node:timers/promises'
import { beforeEach, expect, test } from 'vitest'
import { startDaemon, tokenFile } from '../support/daemon.ts'
import { freshToken, serviceOf, tokenOf } from '../support/outside.ts'
import { granting, type Service } from '../support/service.ts'
import { tempDirectory } from '../support/temp-directory.ts'
import { expectUntil } from '../support/until.ts'

let directory: string
let service: Service
let given: string[]

beforeEach(async () => {
  given = []
  directory = await tempDirectory('memory')
  service = await serviceOf(() => {
    given.push(freshToken(4))
    return granting(given.at(-1) ?? '')
  })
})

/** When a JWT expires, on the wall clock in ms. */
function expiryMs(accessToken: string): number {
  const claims = Buffer.from(accessToken.split('.')[1] ?? '', 'base64url').toString()
  return (JSON.parse(claims) as { exp: number }).exp * 1000
}

test('tokens of 4 s, for five rotations: a reader of the file and one of the socket never see a bad one', async () => {
  const daemon = startDaemon({ directory, baseUrl: service.url })
  await daemon.listening()
  await tokenOf(daemon)
  await expectUntil('the token file', () => tokenFile(daemon) !== undefined)
  let reads = 0
  while (given.length < 6) {
    const inFile = tokenFile(daemon) ?? ''
    const { accessToken, expiresAt, stale } = await tokenOf(daemon)
    expect(given).toContain(inFile)
    expect(given).toContain(accessToken)
    // The time that the check took, on a machine that is busy.
    expect(expiryMs(inFile)).toBeGreaterThan(Date.now() - 500)
    expect(Date.parse(expiresAt)).toBeGreaterThan(Date.now() - 500)
    expect(stale).toBe(false)
    reads += 1
    await sleep(2)
  }
  expect(reads).toBeGreaterThan(100)
})

test('a token that expires in an outage is taken out of file and socket, and the next one put there', async () => {
  const daemon = startDaemon({
    directory,
    baseUrl: service.url,
    config: { retry: { initialDelay: '200ms', maxDelay: '200ms' } },
  })
  await daemon.listening()
  const { accessToken } = await tokenOf(daemon)
  service.answer({ status: 503 })
  await daemon.logged('token-expired')
  await expectUntil('the file to go', () => tokenFile(daemon) === undefined)
  await expect(tokenOf(daemon, 'waitSeconds=0')).rejects.toThrow(/503.*expired/)
  service.answer(() => granting(freshToken()))
  const next = await tokenOf(daemon)
  expect(next.accessToken).not.toBe(accessToken)
  await expectUntil('the token file', () => tokenFile(daemon) === next.accessToken)
})
