// Secrets that rotate by themselves, with a real daemon: it notices at a tick, which comes every 15 s.
import { mkdirSync, renameSync, symlinkSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'
import { expect, test } from 'vitest'
import { useDaemons } from '../support/daemon-world.ts'
import { freshToken, serviceOf, statusOf } from '../support/outside.ts'
import { accountInactive, granting, refusing, type Service } from '../support/service.ts'
import { expectUntil } from '../support/until.ts'

/** A changed content is tried within 30 s. */
const NOTICE_MS = 30_000
const LIMIT_MS = 150_000
const world = useDaemons()

/** A volume as Kubernetes projects it: links into a directory that is swapped as a whole. */
function project(volume: string, pair: { key: string; secret: string }): void {
  const generation = `..${pair.key}`
  mkdirSync(join(volume, generation), { recursive: true })
  for (const [name, value] of Object.entries(pair)) {
    writeFileSync(join(volume, generation, name), value, { mode: 0o440 })
    try {
      symlinkSync(`..data/${name}`, join(volume, name))
    } catch {
      // It was made with the first generation.
    }
  }
  symlinkSync(generation, join(volume, '..data_tmp'))
  renameSync(join(volume, '..data_tmp'), join(volume, '..data'))
}

const sources = (volume: string): object => ({
  credentials: { apiKey: { file: join(volume, 'key') }, apiSecret: { file: join(volume, 'secret') } },
})

/** The service knows one account, whose key and secret may change; another key is an inactive account. */
async function serviceWith(valid: { current: string }): Promise<Service> {
  return serviceOf(({ body }) => {
    const { apiKey, apiSecret } = JSON.parse(body) as { apiKey: string; apiSecret: string }
    if (`${apiKey} ${apiSecret}` === valid.current) return granting(freshToken())
    return apiKey === 'key-inactive' ? accountInactive : refusing(401, 'Unauthorized')
  })
}

const eventually = (what: string, isMet: () => unknown): Promise<unknown> =>
  expectUntil(what, isMet, { withinMs: NOTICE_MS })

test(
  'a refused account is left by a swapped link, without a signal',
  async () => {
    const volume = join(world.directory, 'volume')
    const service = await serviceWith({ current: 'key-of-new secret-of-new' })
    project(volume, { key: 'key-inactive', secret: 'secret-of-old' })
    const daemon = world.start({ baseUrl: service.url, ...sources(volume) })
    await daemon.logged('alert')
    project(volume, { key: 'key-of-new', secret: 'secret-of-new' })
    await eventually('the new pair in use', () => daemon.records('credentials-taken-over').length === 1)
    expect(await statusOf(daemon)).toMatchObject({ state: 'ready', alert: null })
    expect(service.requests).toHaveLength(2)
    expect(daemon.stderr()).not.toMatch(/secret-of|key-of-new secret/)
  },
  LIMIT_MS,
)

test(
  'a wrong pair is reported once, and the running one stays; a baseUrl waits for its reload',
  async () => {
    const volume = join(world.directory, 'volume')
    const valid = { current: 'key-of-old secret-of-old' }
    const service = await serviceWith(valid)
    project(volume, { key: 'key-of-old', secret: 'secret-of-old' })
    const daemon = world.start({ baseUrl: service.url, ...sources(volume) })
    await daemon.listening()
    await eventually('the first token', () => service.requests.length === 1)

    project(volume, { key: 'key-of-new', secret: 'secret-of-new' })
    await eventually('the report', () => daemon.records('credentials-not-taken-over').length === 1)
    expect(await statusOf(daemon)).toMatchObject({ state: 'ready', failure: null })
    expect(service.requests).toHaveLength(2)

    // The right one, together with another address that was not reloaded: neither is in use.
    const other = await serviceWith({ current: 'key-of-2nd secret-of-2nd' })
    daemon.configure({ baseUrl: other.url, ...sources(volume) })
    project(volume, { key: 'key-of-2nd', secret: 'secret-of-2nd' })
    await expectUntil(
      'the status',
      async () => {
        const { configuration } = (await statusOf(daemon)).daemon
        return configuration.state === 'changed'
      },
      { withinMs: NOTICE_MS },
    )
    expect([service.requests.length, other.requests.length]).toEqual([2, 0])
    daemon.process.kill('SIGHUP')
    await eventually('the reload', () => other.requests.length === 1)
    expect(daemon.records('credentials-not-taken-over')).toHaveLength(1)
    expect(daemon.stderr()).not.toContain('secret-of')
  },
  LIMIT_MS,
)
