// Hosts of 2.0.0, as its own commit builds it, and hosts of this version are one fleet: in one real redis-server.
import { execFileSync } from 'node:child_process'
import { join } from 'node:path'
import { beforeAll, describe, expect, onTestFinished, test } from 'vitest'
import manifest from '../../package.json' with { type: 'json' }
import { PROGRAM, tokenFile, type Daemon } from '../support/daemon.ts'
import { formerPackage } from '../support/former-package.ts'
import {
  askAll,
  oneToken,
  recordsOf,
  spareOthers,
  startKnowingService,
  startKnownHost,
} from '../support/fleet.ts'
import { isWithoutRedis, startRedis } from '../support/redis.ts'
import { accountInactive, refusing } from '../support/service.ts'
import { tempDirectory } from '../support/temp-directory.ts'

const withoutRedis = isWithoutRedis('test/share/two-versions')
const NOW = manifest.version
const LIFE_S = 12

/** The command line of 2.0.0, unpacked from its package for this test. */
async function programOf2_0_0(): Promise<readonly string[]> {
  const directory = await tempDirectory()
  const unpack = 'dpkg-deb --fsys-tarfile "$0" | tar -x -C "$1" ./usr/lib/kyc-tokend'
  execFileSync('sh', ['-euc', unpack, await formerPackage('2.0.0'), directory])
  const folder = join(directory, 'usr/lib/kyc-tokend')
  return [join(folder, 'node'), join(folder, 'cli.cjs')]
}

describe.skipIf(withoutRedis)('three hosts of 2.0.0 and three of this version', () => {
  // The package is built once, which takes minutes.
  beforeAll(() => formerPackage('2.0.0'), 600_000)

  test(
    'have one token with one request each time, and lose nothing by one host that gets 403 or is refused',
    { timeout: 180_000 },
    async () => {
      const former = await programOf2_0_0()
      const redis = await startRedis()
      onTestFinished(() => redis.stop())
      const service = await startKnowingService(LIFE_S)
      const start = (version: string, program: readonly string[]): Promise<Daemon>[] =>
        [1, 2, 3].map((number) => startKnownHost(`${version}-${number}`, { redis, service, program }))
      const all = await Promise.all([...start('now', PROGRAM), ...start('former', former)])
      await oneToken(all)
      expect(service.asked).toHaveLength(1)
      const versions = all.map((host) => host.records('started')[0]?.['version'])
      expect(versions).toEqual([NOW, NOW, NOW, '2.0.0', '2.0.0', '2.0.0'])
      // Each version has what the other gets.
      for (const host of [all[0]!, all[5]!]) {
        const held = tokenFile(host)!
        const before = service.asked.length
        expect(await askAll([host], 'refresh.request')).toMatchObject([{ outcome: 'ok' }])
        await oneToken(all, { not: held })
        expect(service.asked).toHaveLength(before + 1)
      }

      for (const bad of [refusing(403, 'Forbidden'), accountInactive])
        await spareOthers(all, { service, name: 'now-1', bad, rotations: 2 })
      expect(recordsOf(all, 'share-unreadable')).toEqual([])
      expect(recordsOf(all, 'share-lost')).toEqual([])
    },
  )
})
