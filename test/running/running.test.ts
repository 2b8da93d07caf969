// The files that a running daemon follows: their kinds and moments, the answers to reloads, the records. What follows
// for clients and for the requests is in the scenarios.
import { chmodSync, mkdirSync, renameSync, symlinkSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'
import { beforeAll, describe, expect, it } from 'vitest'
import { revealAll } from '../../src/config/config.ts'
import type { Load } from '../../src/daemon/daemon.ts'
import { UserError } from '../../src/lib/error.ts'
import type { ReloadResult } from '../../src/protocol.ts'
import { recordsOfLines } from '../rules/records.ts'
import { createWorld, type Step } from '../scenarios/world.ts'
import { createAuthority, createCertificate } from '../support/certificates.ts'

const refused = { status: 404, detail: 'Account not found' }

beforeAll(() => import('p-retry'))

/** A daemon with the pair `first`, whose files have settled. */
async function started(through?: (load: Load) => Load) {
  const world = await createWorld(through && { through })
  const play = async (...steps: Step[]): Promise<void> => {
    for (const step of steps) await world.play(step)
  }
  await play('start', { wait: '45s' })
  return {
    ...world,
    play,
    /** Writes a file with secrets. */
    write: (name: string, text: string, mode = 0o600): void => {
      writeFileSync(join(world.directory, name), text)
      chmodSync(join(world.directory, name), mode)
    },
    reload: () => world.ask<ReloadResult>('reload.request'),
    /** The fields of the records of this event. */
    records: (event: string) =>
      recordsOfLines(world.logged().join('\n')).flatMap((one) => (one.event === event ? [one.fields] : [])),
    /** Waits so long; gives what the act has resolved to by then, or null. */
    after: async <T>(wait: string, act: Promise<T>): Promise<T | null> => {
      let result: T | null = null
      void act.then((value) => (result = value))
      await play({ wait })
      return result
    },
  }
}

describe('secret files that change', () => {
  it('are those of the client certificate, too, also behind a link that is swapped', async () => {
    const { play, seen, records, directory, write } = await started()
    const authority = createAuthority()
    /** As Kubernetes projects a volume. */
    const project = (generation: string): void => {
      const { cert, key } = createCertificate(authority, { names: ['us'] })
      mkdirSync(join(directory, generation))
      write(`${generation}/client.pem`, `${cert}${key}`)
      symlinkSync(generation, join(directory, '..next'))
      renameSync(join(directory, '..next'), join(directory, '..data'))
    }
    project('..1')
    symlinkSync('..data/client.pem', join(directory, 'client.pem'))
    const certFile = 'client.pem'
    await play({ reload: { request: { clientCertificate: { certFile, key: { file: certFile } } } } })
    project('..2')
    await play({ wait: '45s' })
    const files = ['apiKey', 'apiSecret', certFile].map((name) => join(directory, name))
    const taken = { level: 'notice', files: expect.arrayContaining(files) as string[] }
    expect(records('credentials-taken-over')).toMatchObject([taken, taken])
    expect(await seen()).toMatchObject({ requests: 3, configuration: 'current' })
  })

  it('are left alone until both have been the same for 30 s', async () => {
    const { play, seen, write } = await started()
    write('apiKey', 'key-of-second')
    await play({ wait: '22s' })
    write('apiSecret', 'secret-of-second')
    await play({ wait: '29s' })
    expect(await seen()).toMatchObject({ requests: 1 })
    await play({ wait: '15s' })
    expect(await seen()).toMatchObject({ requests: 2, 'asked as': 'second at first' })
  })

  it('are reported once for each pair and reason where they give no token', async () => {
    const { play, records } = await started()
    await play({ service: { to: 'second', silent: 'network' } })
    await play({ write: { credentials: 'second' } }, { wait: '5m' })
    await play({ service: { to: 'second', status: 403, detail: 'no' } }, { wait: '20m' })
    await play({ service: { to: 'third', status: 403, detail: 'no' } })
    await play({ write: { credentials: 'third' } }, { wait: '1m' })
    const errors = ['network: No answer', 'rejected: no', 'rejected: no']
    const untaken = errors.map((error) => ({ level: 'error', error }))
    expect(records('credentials-not-taken-over')).toMatchObject(untaken)
  })

  it.each([
    ['empty', /apiSecret: is empty/, '', 0o600],
    ['readable by all', /chmod o-rwx/, 'secret-of-second', 0o644],
  ])('count as not changed while one is %s, and that is logged once', async (_, error, text, mode) => {
    const { play, seen, records, write } = await started()
    write('apiSecret', text, mode)
    await play({ wait: '45s' })
    const record = { level: 'error', error: expect.stringMatching(error) as string }
    expect(records('configuration-faulty')).toMatchObject([record])
    expect(await seen()).toMatchObject({ requests: 1, configuration: 'faulty' })
    write('apiSecret', 'secret-of-first')
    await play({ wait: '45s' })
    expect(await seen()).toMatchObject({ requests: 1, configuration: 'current' })
  })
})

it('an operator waits for 5 s for a disk that does not answer, and has the running pair asked', async () => {
  const never = new Promise<never>(() => undefined)
  let isHung = false
  const { ask, after, play } = await started((load) => async (inForce) => (isHung ? never : load(inForce)))
  isHung = true
  await play({ write: { credentials: 'second' } })
  const refreshed = ask('refresh.request')
  expect(await after('4900ms', refreshed)).toBeNull()
  expect(await after('200ms', refreshed)).toMatchObject({ outcome: 'ok' })
})

describe('a reload', () => {
  it('of a refused pair says so, does not ask again, and an operator does', async () => {
    const { play, seen, reload } = await started()
    await play({ service: { to: 'second', ...refused } }, { write: { credentials: 'second' } })
    for (const _ of ['first', 'again'])
      expect(await reload()).toMatchObject({ outcome: 'failed', pair: 'refused' })
    expect(await seen()).toMatchObject({ token: 'A', requests: 2 })
    await play({ service: { jwt: 'B' } }, 'operator')
    expect(await seen()).toMatchObject({ token: 'B', requests: 3 })
    expect(await reload()).toMatchObject({ outcome: 'ok', pair: null })
  })

  it('of another pair is ok once that gives a token; other settings count for the running pair at once', async () => {
    const { play, seen, after, reload } = await started()
    await play({ service: { opaque: 'A' } }, 'operator', { service: { opaque: 'B', after: '10s' } })
    await play({ write: { credentials: 'second', refresh: { maxAge: '7m' } } }, { wait: '45s' })
    expect(await seen()).toMatchObject({ requests: 2 })
    const reloaded = reload()
    expect(await after('9s', reloaded)).toBeNull()
    expect(await seen()).toMatchObject({ token: 'A', left: 420_000 - 54_000 })
    expect(await after('2s', reloaded)).toMatchObject({ outcome: 'ok', pair: 'in-use' })
    await play({ service: { opaque: 'C' } }, { write: { baseUrl: 'other' } })
    expect(await reload()).toMatchObject({ outcome: 'ok', pair: null })
  })

  it('answers after 60 s where the service does not', async () => {
    const { play, after, reload } = await started()
    await play({ service: { hangs: true } }, { write: { credentials: 'second' } })
    const reloaded = reload()
    expect(await after('59s', reloaded)).toBeNull()
    expect(await after('2s', reloaded)).toMatchObject({ outcome: 'failed', pair: 'tried' })
  })

  it('uses a secret file as it is now, also one that the configuration in force does not name', async () => {
    let secrets: string[] = []
    const { play, write, reload } = await started((load) => async (inForce) => {
      const config = await load(inForce)
      secrets = revealAll(config)
      return config
    })
    write('header', 'secret-with-a-typo')
    await play({ write: { service: { headers: { 'x-secret': { file: 'header' } } } } }, { wait: '20s' })
    expect(secrets).toContain('secret-with-a-typo')
    write('header', 'secret-of-the-header')
    expect(await reload()).toMatchObject({ outcome: 'ok', pair: 'in-use' })
    expect(secrets).toContain('secret-of-the-header')
  })

  it('begins when the one before is in force', async () => {
    const { seen, reload } = await started()
    await Promise.all([reload(), reload()])
    expect(await seen()).toMatchObject({ systemd: 'READY, RELOADING, READY, RELOADING, READY' })
  })
})

it('the configuration on disk is good again once its fault has gone by itself, though no file has changed', async () => {
  let isFaulty = false
  const { play, seen } = await started((load) => async (inForce) => {
    if (isFaulty) throw new UserError('there is no group app', 78)
    return load(inForce)
  })
  isFaulty = true
  await play({ write: { log: { level: 'info', format: 'json' } } })
  expect(await seen()).toMatchObject({ configuration: 'faulty', problem: 'there is no group app' })
  isFaulty = false
  expect(await seen()).toMatchObject({ configuration: 'changed', problem: 'none' })
})
