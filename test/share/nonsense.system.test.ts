// A server that answers nonsense: a daemon says that the store cannot be used, gets its token by itself, and
// neither ends nor grows.
import { readFileSync } from 'node:fs'
import type { Socket } from 'node:net'
import { setTimeout as sleep } from 'node:timers/promises'
import { expect, test } from 'vitest'
import { tokenFile, type Daemon } from '../support/daemon.ts'
import { recordsOf, startHost, startTokenService } from '../support/fleet.ts'
import { startNonsenseRedis } from '../support/nonsense-redis.ts'
import { expectUntil } from '../support/until.ts'

const SUBSCRIBED = '*3\r\n$9\r\nsubscribe\r\n$1\r\nc\r\n:1\r\n'
const bulk = (text: string): string => `$${text.length}\r\n${text}\r\n`
const message = (text: string): string => `*3\r\n${bulk('message')}${bulk('c')}${bulk(text)}`
/** What a script replies: the time, record, lease, the time that is left of it, and the number of hosts. */
const held = (record: string, lease: string, left: string): string =>
  `*6\r\n${bulk('1')}${bulk('1')}${bulk(record)}${bulk(lease)}${left}\r\n:1\r\n`
const [RECORD, LEASE] = ['9 0123456789abcdef x', '0123456789abcdef']

const scripts =
  (answer: string) =>
  (socket: Socket, command: string): void => {
    socket.write(command.startsWith('eval') ? answer : SUBSCRIBED)
  }
const NONSENSE: Readonly<Record<string, (socket: Socket, command: string) => void>> = {
  'a lease that never ends': scripts(held(RECORD, LEASE, ':9007199254740991')),
  'a record that does not open, again and again': scripts(held(RECORD, LEASE, ':1000')),
  'a redirection to itself': scripts('-MOVED 1 127.0.0.1:1\r\n'),
  nothing: () => undefined,
  'the end of the connection': (socket) => socket.destroy(),
  'messages without end': (socket, command) => {
    if (command.startsWith('eval')) return
    socket.write(SUBSCRIBED)
    setInterval(() => !socket.destroyed && socket.write(message('A'.repeat(400))), 1).unref()
  },
  'a message that is a number': (socket, command) => {
    socket.write(
      command.startsWith('eval') ? ':1\r\n' : `${SUBSCRIBED}*3\r\n$7\r\nmessage\r\n$1\r\nc\r\n:1\r\n`,
    )
  },
}
/** Resident memory, in MB. */
function residentMb({ process: { pid } }: Daemon): number {
  const [, kilobytes] = /^VmRSS:\s+(\d+) kB$/m.exec(readFileSync(`/proc/${pid}/status`, 'utf8')) ?? []
  return Number(kilobytes) / 1024
}

test.each(Object.entries(NONSENSE))('%s', { timeout: 90_000 }, async (_name, answer) => {
  const service = await startTokenService(3_600)
  const redis = await startNonsenseRedis(answer)
  const host = await startHost('host', {
    redis,
    baseUrl: service.url,
    share: { timeout: '1s' },
    config: { request: { timeout: '1s' } },
    // As in the unit.
    env: { NODE_OPTIONS: '--max-old-space-size=64' },
  })
  await expectUntil('a token', () => tokenFile(host) !== undefined, { withinMs: 40_000 })
  const before = { ...redis.counts }
  expect(before.commands).toBeLessThan(200)
  await sleep(3_000)
  expect(host.process.exitCode, host.stderr()).toBeNull()
  expect(residentMb(host)).toBeLessThan(200)
  expect(service.requests).toHaveLength(1)
  // Once for each attempt at most: what looks right may be found to be of no use by the next step.
  const losses = recordsOf([host], 'share-lost').length
  expect(losses).toBeGreaterThan(0)
  expect(losses).toBeLessThanOrEqual(3)
  expect(recordsOf([host], 'share-unreadable').length).toBeLessThanOrEqual(1)
  expect(redis.counts.connections - before.connections).toBeLessThan(12)
  expect(redis.counts.commands - before.commands).toBeLessThan(60)
  expect(await host.end()).toBe(0)
})
