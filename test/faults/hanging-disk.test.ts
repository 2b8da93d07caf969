// A disk that hangs under the state directory, in the real program: everything else goes on, and the process ends.
import { spawnSync } from 'node:child_process'
import { get } from 'node:http'
import { mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'
import { expect, onTestFinished, test } from 'vitest'
import { startDaemon } from '../support/daemon.ts'
import { jwtOf } from '../support/jwt.ts'
import { startService } from '../support/service.ts'
import { tempDirectory } from '../support/temp-directory.ts'
import { expectUntil } from '../support/until.ts'

/** The status of `GET /healthz`. */
function healthOf(socketPath: string): Promise<number | undefined> {
  return new Promise((resolve, reject) => {
    get({ socketPath, path: '/healthz' }, (response) => {
      response.resume()
      resolve(response.statusCode)
    }).on('error', reject)
  })
}

test('costs neither the token nor its removal, the sockets or the stop', { timeout: 60_000 }, async () => {
  let issued = 0
  let isDown = false
  const service = await startService({
    answer: () => {
      if (isDown) return { status: 503, json: {} }
      const iat = Date.now() / 1000
      issued += 1
      return { status: 200, json: { accessToken: jwtOf({ iat, exp: iat + 8 }, issued) } }
    },
  })
  onTestFinished(async () => service.stop())
  const runtimeDirectory = mkdtempSync('/dev/shm/kyc-tokend-hang-')
  onTestFinished(() => rmSync(runtimeDirectory, { recursive: true }))
  const directory = await tempDirectory()
  const stateDirectory = join(directory, 'state')
  const flag = join(directory, 'flag')
  const fifo = join(directory, 'fifo')
  spawnSync('mkfifo', [fifo])
  const preload = new URL('../support/hanging-disk.mjs', import.meta.url).href
  const daemon = startDaemon({
    directory,
    baseUrl: service.url,
    config: { runtimeDirectory, stateDirectory, tokenFiles: [{ path: 'token', format: 'raw' }] },
    env: {
      NODE_OPTIONS: `--import=${preload}`,
      HANG_DIRECTORY: stateDirectory,
      HANG_FLAG: flag,
      HANG_FIFO: fifo,
    },
  })
  const tokenFile = (): string | undefined => {
    try {
      return readFileSync(join(runtimeDirectory, 'token'), 'utf8')
    } catch {
      // Not there: the token has expired, or there is none yet.
      return undefined
    }
  }
  const first = await expectUntil('a token file', tokenFile)
  writeFileSync(flag, '')
  const askedBefore = service.requests.length
  await expectUntil('two more requests', () => service.requests.length >= askedBefore + 2)
  const later = await expectUntil('another token', () => [tokenFile()].find((text) => text !== first))
  expect(later).toBeDefined()
  isDown = true
  await expectUntil('that the expired token is removed', () => tokenFile() === undefined)
  expect(await daemon.logged('state-file-error')).toMatchObject({
    error: expect.stringContaining('has not answered for 5 s'),
  })
  expect(await healthOf(join(runtimeDirectory, 'http.sock'))).toBe(200)
  const requestsWhileDown = service.requests.length
  await expectUntil('that it goes on asking', () => service.requests.length >= requestsWhileDown + 2)
  const stoppedAtMs = Date.now()
  expect(await daemon.end('SIGTERM')).toBe(0)
  expect(Date.now() - stoppedAtMs).toBeLessThan(5_000)
})
