// Secrets that rotate by themselves, with a real daemon: it notices at a tick, which comes every 15 s.
import { mkdirSync, renameSync, symlinkSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'
import { expect, test } from 'vitest'
import { useDaemons } from '../support/daemon-world.ts'
import { statusOf } from '../support/outside.ts'
import { accountInactive } from '../support/service.ts'
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

test(
  'a refused account is left by a swapped link, without a signal',
  async () => {
    const volume = join(world.directory, 'volume')
    const { service } = world
    service.answer(({ body }) => (body.includes('key-of-new') ? world.grant() : accountInactive))
    project(volume, { key: 'key-inactive', secret: 'secret-of-old' })
    const daemon = world.start({
      credentials: { apiKey: { file: join(volume, 'key') }, apiSecret: { file: join(volume, 'secret') } },
    })
    await daemon.logged('alert')
    project(volume, { key: 'key-of-new', secret: 'secret-of-new' })
    const isTaken = (): boolean => daemon.records('credentials-taken-over').length === 1
    await expectUntil('the new pair in use', isTaken, { withinMs: NOTICE_MS })
    expect(await statusOf(daemon)).toMatchObject({ state: 'ready', alert: null })
    expect(service.requests).toHaveLength(2)
    expect(daemon.stderr()).not.toMatch(/secret-of|key-of-new secret/)
  },
  LIMIT_MS,
)
