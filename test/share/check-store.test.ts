// The store as `check` sees it: what it is, what may go wrong with it, and nothing of the check is left in
// it.
import { describe, expect, onTestFinished, test } from 'vitest'
import type { ShareConfig } from '../../src/config/config.ts'
import { createSystemClock } from '../../src/lib/clock.ts'
import { Secret } from '../../src/lib/secret.ts'
import { checkStore } from '../../src/share/check-store.ts'
import { freePort, isWithoutRedis, settingsOf, startRedis, type RedisServer } from '../support/redis.ts'

const withoutRedis = isWithoutRedis('test/share/check-store')

async function start(args: readonly string[] = []): Promise<RedisServer> {
  const server = await startRedis({ args })
  onTestFinished(() => server.stop())
  return server
}
const check = async (
  server: RedisServer,
  { change = {}, nowMs = Date.now }: { change?: Partial<ShareConfig>; nowMs?: () => number } = {},
): Promise<string[]> => {
  const rest = { key: null, host: null, asks: true, whenAlone: 'fetch' } as const
  const clock = { ...createSystemClock(), now: () => ({ bootMs: 0, wallMs: nowMs() }) }
  const share = { ...settingsOf(server), ...rest, ...change }
  const findings = await checkStore(share, { clock, random: Math.random })
  return findings.map(({ level, sentence }) => `${level} ${sentence}`)
}

describe.skipIf(withoutRedis)('check', () => {
  test('names the server and its role, tries every right, and leaves no key behind', async () => {
    const server = await start()
    const findings = await check(server)
    const product = server.cli('info', 'server').includes('valkey_version') ? 'Valkey' : 'Redis'
    expect(findings).toEqual([
      expect.stringMatching(new RegExp(`^ok is ${product} \\d+\\.\\d+\\.\\d+, role master$`)),
      'ok lets this host read, write, publish and subscribe',
    ])
    expect(server.cli('keys', '*')).toBe('')
  })

  test('warns of a policy that evicts and of clocks that are apart; a replica is a fault', async () => {
    const server = await start(['--maxmemory-policy', 'allkeys-lru'])
    expect((await check(server)).join('\n')).toMatch(/^warning has maxmemory-policy allkeys-lru/m)
    const ahead = await check(server, { nowMs: () => Date.now() + 60_000 })
    expect(ahead.join('\n')).toMatch(/^warning has a clock 1 min behind this host's/m)
    server.cli('replicaof', '127.0.0.1', '1')
    expect((await check(server)).join('\n')).toContain('fault is a slave, which takes no writes')
  })

  test('a wrong password and a missing right are faults, with the line that grants the rights', async () => {
    const server = await start(['--requirepass', 'right'])
    const denied = (await check(server, { change: { password: new Secret('wrong-one') } })).join('\n')
    expect(denied).toMatch(
      /^fault denies access at \S+: .*WRONGPASS.*ACL SETUSER default on >PASSWORD resetkeys/m,
    )
    expect(denied).not.toContain('wrong-one')
    server.cli('-a', 'right', 'acl', 'setuser', 'kyc', 'on', '>a-password', '~*', '+@all')
    const weak = { user: 'kyc', password: new Secret('a-password') }
    expect((await check(server, { change: weak })).join('\n')).toMatch(
      /^fault denies access at \S+: .*ACL SETUSER kyc/m,
    )
  })

  test('a server without TLS is a fault that names it, the setting and the remedy', async () => {
    const port = await freePort()
    const server = await startRedis({ port })
    onTestFinished(() => server.stop())
    const tls = { ca: null, serverName: null, cert: null, key: null }
    expect((await check(server, { change: { tls, timeoutMs: 1_000 } })).join('\n')).toMatch(
      new RegExp(
        `^fault cannot be used at 127.0.0.1:${port}: .* share.tls: false if the server speaks no TLS`,
      ),
    )
  })
})
