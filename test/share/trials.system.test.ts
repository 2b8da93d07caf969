// Other credentials that are written to the secret files of many hosts are tried once for all; with real daemons and a real redis-server.
import { mkdirSync, renameSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'
import { setTimeout as sleep } from 'node:timers/promises'
import { describe, expect, onTestFinished, test } from 'vitest'
import { oneToken, recordsOf, startHost, startTokenService } from '../support/fleet.ts'
import { isWithoutRedis, startRedis } from '../support/redis.ts'
import { accountInactive } from '../support/service.ts'
import { tempDirectory } from '../support/temp-directory.ts'
import { expectUntil } from '../support/until.ts'

const withoutRedis = isWithoutRedis('test/share/trials')
/** A tick comes every 15 s, and the files have to rest for 2 s. */
const NOTICE_MS = 40_000

describe.skipIf(withoutRedis)('a pair that the service refuses', { timeout: 200_000 }, () => {
  test('and that is written to 8 hosts at once, and again 2 s apart, costs one request a minute', async () => {
    const redis = await startRedis()
    onTestFinished(() => redis.stop())
    const service = await startTokenService(3_600)
    const isNew = ({ body }: { body: string }): boolean => body.includes('key-of-new')
    service.answer(async (request) => {
      if (!isNew(request)) return service.token()
      await sleep(3_000)
      return accountInactive
    })
    const directory = await tempDirectory()
    const names = Array.from({ length: 8 }, (_, index) => `host-${index + 1}`)
    const write = (name: string, pair: string): void => {
      for (const what of ['key', 'secret']) {
        writeFileSync(join(directory, name, 'next'), `${what}-of-${pair}-0815`, { mode: 0o600 })
        renameSync(join(directory, name, 'next'), join(directory, name, what))
      }
    }
    const hosts = await Promise.all(
      names.map((name) => {
        mkdirSync(join(directory, name))
        write(name, 'old')
        const source = (what: string) => ({ file: join(directory, name, what) })
        const credentials = { apiKey: source('key'), apiSecret: source('secret') }
        return startHost(name, {
          redis,
          baseUrl: service.url,
          share: { timeout: '5s' },
          config: { credentials },
        })
      }),
    )
    const token = await oneToken(hosts)
    for (const name of names) write(name, 'new')
    const refused = (): number => recordsOf(hosts, 'credentials-not-taken-over').length
    await expectUntil('the refusal on all hosts', () => refused() === hosts.length, { withinMs: NOTICE_MS })
    expect(service.requests.filter(isNew)).toHaveLength(1)
    for (const name of names) {
      write(name, 'new')
      await sleep(2_000)
    }
    await sleep(20_000)
    expect(service.requests.filter(isNew).length).toBeLessThanOrEqual(2)
    expect(await oneToken(hosts)).toBe(token)
  })
})
