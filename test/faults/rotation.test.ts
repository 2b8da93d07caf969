// Tokens that live for seconds: every reader, by file or by socket, always has a good one.
import { setTimeout as sleep } from 'node:timers/promises'
import { expect, test } from 'vitest'
import { tokenFile } from '../support/daemon.ts'
import { useDaemons } from '../support/daemon-world.ts'
import { tokenOf } from '../support/outside.ts'
import { expectUntil } from '../support/until.ts'

const world = useDaemons('memory')
const { given } = world

/** When a JWT expires, on the wall clock in ms. */
function expiryMs(accessToken: string): number {
  const claims = Buffer.from(accessToken.split('.')[1] ?? '', 'base64url').toString()
  return (JSON.parse(claims) as { exp: number }).exp * 1000
}

test('of tokens of 4 s readers of the file and of the socket never see a bad one', async () => {
  world.service.answer(() => world.grant(4))
  const daemon = await world.started()
  await tokenOf(daemon)
  await expectUntil('the token file', () => tokenFile(daemon) !== undefined)
  let reads = 0
  while (given.length < 6) {
    const readMs = Date.now()
    const inFile = tokenFile(daemon) ?? ''
    const { accessToken, expiresAt, stale } = await tokenOf(daemon)
    expect(given).toContain(inFile)
    expect(given).toContain(accessToken)
    // On a machine that is busy the daemon may be late.
    expect(expiryMs(inFile)).toBeGreaterThan(readMs - 500)
    expect(Date.parse(expiresAt)).toBeGreaterThan(readMs - 500)
    expect(stale).toBe(false)
    reads += 1
    await sleep(2)
  }
  expect(reads).toBeGreaterThan(100)
})
