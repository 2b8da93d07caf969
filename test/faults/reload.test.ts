// Reloads of a real daemon: under load, of every part, and none that costs a client its answer.
import { existsSync } from 'node:fs'
import { join } from 'node:path'
import { setImmediate } from 'node:timers/promises'
import { expect, onTestFinished, test } from 'vitest'
import { TokenClient } from '../../src/client/index.ts'
import { textOf, tokenFile, type Daemon } from '../support/daemon.ts'
import { useDaemons } from '../support/daemon-world.ts'
import { askOnce } from '../support/ipc-client.ts'
import { tokenOf } from '../support/outside.ts'
import { expectUntil } from '../support/until.ts'

const world = useDaemons()

async function started(config: object = {}): Promise<Daemon> {
  const daemon = await world.started(config)
  const answer = await askOnce(daemon.ipcPath, 'token.get', { waitSeconds: 10 })
  await expectUntil('the token file', () => tokenFile(daemon) === answer?.data['accessToken'])
  return daemon
}

test('100 reloads while clients ask continuously cost not one answer', { timeout: 120_000 }, async () => {
  const daemon = await started()
  const client = new TokenClient({ socketPath: daemon.ipcPath })
  onTestFinished(() => client.close())
  const { accessToken } = await client.get()
  const over = new AbortController()
  const answers = { client: 0, ipc: 0, http: 0 }
  const asking = [
    async () => {
      expect((await client.get()).accessToken).toBe(accessToken)
      answers.client += 1
    },
    async () => {
      expect(await askOnce(daemon.ipcPath, 'token.get', {})).toMatchObject({
        type: 'token.result',
        data: { accessToken },
      })
      answers.ipc += 1
    },
    async () => {
      expect((await tokenOf(daemon)).accessToken).toBe(accessToken)
      answers.http += 1
    },
  ].map(async (ask) => {
    while (!over.signal.aborted) {
      await ask()
      // The client answers from memory, in no turn of its own.
      await setImmediate()
    }
  })
  for (let reloads = 0; reloads < 100; reloads += 1) {
    await daemon.reload({
      log: { level: 'info', format: 'json' },
      refresh: { maxAge: `${10 + (reloads % 5)}m` },
    })
  }
  over.abort()
  await Promise.all(asking)
  for (const answered of Object.values(answers)) expect(answered).toBeGreaterThan(20)
  expect(daemon.records('reload-failed')).toEqual([])
  expect(world.service.requests).toHaveLength(1)
  expect(tokenFile(daemon)).toBe(accessToken)
})

/** Reloads twice with these settings: each time these need a restart, and all others are in force. */
async function needsRestart(daemon: Daemon, config: object, settings: readonly string[]): Promise<void> {
  for (let reloads = 1; reloads <= 2; reloads += 1) {
    await daemon.reload({ ...config, refresh: { maxAge: `${10 + reloads}m` } })
    await expectUntil('its record', () => daemon.records('reloaded').length === reloads)
    expect(daemon.records('reloaded').at(-1)).toMatchObject({ needsRestart: settings })
  }
  expect(daemon.records('reload-failed')).toEqual([])
}

test('other directories take effect at a restart and not before, and that is said each time', async () => {
  const daemon = await started()
  const elsewhere = join(world.directory, 'elsewhere')
  const config = { runtimeDirectory: elsewhere, stateDirectory: join(elsewhere, 'state') }
  await needsRestart(daemon, config, ['runtimeDirectory', 'stateDirectory'])
  expect(existsSync(elsewhere)).toBe(false)
  const { accessToken } = await tokenOf(daemon)
  expect(tokenFile(daemon)).toBe(accessToken)
  await daemon.end()
  await world.started(config)
  await expectUntil('the token file', () => textOf(join(elsewhere, 'token')) !== undefined)
})

test('HTTP is switched off by a restart', async () => {
  const daemon = await started()
  await needsRestart(daemon, { http: false }, ['http'])
  expect((await tokenOf(daemon)).state).toBe('ready')
  await daemon.end()
  const without = await world.started({ http: false })
  expect(existsSync(without.httpPath)).toBe(false)
  const status = await askOnce(without.ipcPath, 'status.get', {})
  expect(status).toMatchObject({ data: { clients: { http: null } } })
})
