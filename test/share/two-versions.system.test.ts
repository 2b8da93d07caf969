// Hosts of 2.0.0, as its own commit builds it, and hosts of this version are one fleet: in one real redis-server,
// each with a client certificate of its own, by which the service knows it.
import { execFileSync } from 'node:child_process'
import { mkdirSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'
import type { TLSSocket } from 'node:tls'
import { beforeAll, describe, expect, onTestFinished, test } from 'vitest'
import manifest from '../../package.json' with { type: 'json' }
import { createAuthority, createCertificate } from '../support/certificates.ts'
import { alertFile, PROGRAM, tokenFile, type Daemon } from '../support/daemon.ts'
import { askAll, oneToken, recordsOf, startHost } from '../support/fleet.ts'
import { formerPackage } from '../support/former-package.ts'
import { freshToken } from '../support/outside.ts'
import { isWithoutRedis, startRedis, type RedisServer } from '../support/redis.ts'
import { accountInactive, granting, refusing, startService, type ScriptedAnswer } from '../support/service.ts'
import { tempDirectory } from '../support/temp-directory.ts'
import { expectUntil } from '../support/until.ts'

const withoutRedis = isWithoutRedis('test/share/two-versions')
const NOW = manifest.version
/** A third of it is left for a rotation, which may have to wait for the end of a lease. */
const LIFE_S = 24

/** The command line of 2.0.0, unpacked from its package for this test. */
async function programOf2_0_0(): Promise<readonly string[]> {
  const directory = await tempDirectory()
  const unpack = 'dpkg-deb --fsys-tarfile "$0" | tar -x -C "$1" ./usr/lib/kyc-tokend'
  execFileSync('sh', ['-euc', unpack, await formerPackage('2.0.0'), directory])
  const folder = join(directory, 'usr/lib/kyc-tokend')
  return [join(folder, 'node'), join(folder, 'cli.cjs')]
}

type KnowingService = Awaited<ReturnType<typeof startKnowingService>>

/** A service that asks for client certificates, and answers by the name in them. */
async function startKnowingService() {
  const authority = createAuthority()
  const server = createCertificate(authority, { names: ['localhost'] })
  /** The names of the hosts that asked, in turn. */
  const asked: string[] = []
  const answers: Record<string, ScriptedAnswer> = {}
  const tls = { ...server, ca: authority.cert, requestCert: true, rejectUnauthorized: true }
  const service = await startService({
    tls,
    answer(_request, { socket }) {
      const name = String((socket as TLSSocket).getPeerCertificate().subject.CN)
      asked.push(name)
      return answers[name] ?? granting(freshToken(LIFE_S))
    },
  })
  onTestFinished(async () => service.stop())
  return { url: service.url, authority, asked, answers }
}

async function startKnownHost(
  name: string,
  { redis, service, program }: { redis: RedisServer; service: KnowingService; program: readonly string[] },
): Promise<Daemon> {
  const directory = join(await tempDirectory('memory'), name)
  mkdirSync(directory)
  const write = (file: string, text: string): string => {
    writeFileSync(join(directory, file), text, { mode: 0o600 })
    return join(directory, file)
  }
  const { cert, key } = createCertificate(service.authority, { names: [name] })
  const clientCertificate = { certFile: write('cert.pem', cert), key: { file: write('key.pem', key) } }
  const request = { timeout: '4s', caFile: write('ca.pem', service.authority.cert), clientCertificate }
  const share = { timeout: '5s' }
  return startHost(name, { redis, baseUrl: service.url, program, directory, share, config: { request } })
}

/** The service answers the first host like this, and its operator asks: the others lose nothing. */
async function expectSpared(hosts: readonly Daemon[], bad: ScriptedAnswer, service: KnowingService) {
  const [first, ...others] = hosts as [Daemon, ...Daemon[]]
  const { length } = service.asked
  service.answers['now-1'] = bad
  const [outcome] = await askAll([first], 'refresh.request')
  expect(outcome).toMatchObject({ outcome: expect.not.stringMatching('ok') })
  const without = new Set<string>()
  const isRotated = (): boolean => {
    for (const host of others) if (tokenFile(host) === undefined) without.add(host.directory)
    return service.asked.slice(length).filter((name) => name !== 'now-1').length >= 2
  }
  await expectUntil('two rotations', isRotated, { withinMs: 60_000 })
  expect([...without]).toEqual([])
  expect(others.filter((host) => alertFile(host) !== undefined)).toEqual([])
  // It has the tokens of the others.
  await expectUntil('no alert on the first host', () => alertFile(first) === undefined)
  delete service.answers['now-1']
  await askAll(others.slice(0, 1), 'refresh.request')
  await oneToken(hosts)
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
      const service = await startKnowingService()
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

      for (const bad of [refusing(403, 'Forbidden'), accountInactive]) await expectSpared(all, bad, service)
      expect(recordsOf(all, 'share-unreadable')).toEqual([])
      expect(recordsOf(all, 'share-lost')).toEqual([])
    },
  )
})
