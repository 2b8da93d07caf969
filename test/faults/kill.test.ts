// kill -9 at any moment: every file is whole, and the next start goes on where this one was.
import { readdirSync, statSync } from 'node:fs'
import { join } from 'node:path'
import { setTimeout as sleep } from 'node:timers/promises'
import { expect, test } from 'vitest'
import { textOf, tokenFile } from '../support/daemon.ts'
import { tokenOf } from '../support/outside.ts'
import { createRandom } from '../support/random.ts'
import { useDaemons } from '../support/daemon-world.ts'
import { expectUntil } from '../support/until.ts'

const world = useDaemons()

/** By name: the content for a token, and the mode. */
const FILES = {
  token: [(token: string) => token, 0o600],
  'token.env': [(token: string) => `KYC_ACCESS_TOKEN=${token}\n`, 0o640],
} as const

test('at random moments of rapid rotation: files are whole, and the next start serves at once', async () => {
  const random = createRandom(4711)
  const tokenFiles = [{ path: 'token' }, { path: 'token.env', format: 'env', mode: '0640' }]
  // A request that a kill has cut off is repeated after the test.
  const config = { tokenFiles, retry: { initialDelay: '1m' } }
  for (let round = 0; round < 8; round += 1) {
    const daemon = await world.started(config)
    await tokenOf(daemon)
    const rotating = setInterval(() => daemon.process.kill('SIGUSR2'), 3)
    await world.service.arrived(world.service.requests.length + 1 + Math.floor(random() * 5))
    await sleep(random() * 8)
    clearInterval(rotating)
    await daemon.end('SIGKILL')
    for (const [name, [contentOf, mode]] of Object.entries(FILES)) {
      const file = join(world.directory, 'run', name)
      const content = textOf(file)
      // Killed before the first was written, there is none.
      if (content === undefined) continue
      expect(world.given.map(contentOf)).toContain(content)
      expect(statSync(file).mode & 0o777).toBe(mode)
    }
  }
  const asked = world.service.requests.length
  expect(asked).toBeGreaterThan(8)
  const last = await world.started(config)
  const { accessToken } = await tokenOf(last, 'waitSeconds=0')
  expect(world.given).toContain(accessToken)
  await expectUntil('the token file', () => tokenFile(last) === accessToken)
  expect(world.service.requests).toHaveLength(asked)
  const left = ['run', 'state'].flatMap((directory) => readdirSync(join(world.directory, directory)))
  expect(left.filter((name) => name.endsWith('.kyc'))).toEqual([])
})
