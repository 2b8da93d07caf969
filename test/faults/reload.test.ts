// Reloads of a real daemon: under load, and of settings that need a restart.
import { existsSync } from 'node:fs'
import { join } from 'node:path'
import { setImmediate } from 'node:timers/promises'
import { expect, onTestFinished, test } from 'vitest'
import { TokenClient } from '../../src/client/index.ts'
import { tokenFile, textOf } from '../support/daemon.ts'
import { useDaemons } from '../support/daemon-world.ts'
import { askOnce } from '../support/ipc-client.ts'
import { tokenOf } from '../support/outside.ts'
import { expectUntil } from '../support/until.ts'

const world = useDaemons()

test('100 reloads while clients ask continuously cost not one answer', { timeout: 120_000 }, async () => {
  const daemon = await world.started()
  const client = new TokenClient({ socketPath: daemon.ipcPath })
  onTestFinished(() => client.close())
  const { accessToken } = await client.get()
  const over = new AbortController()
  const asks = [
    async () => (await client.get()).accessToken,
    async () => (await askOnce(daemon.ipcPath, 'token.get', {}))?.data['accessToken'],
    async () => (await tokenOf(daemon)).accessToken,
  ]
  const asking = asks.map(async (ask) => {
    let answers = 0
    for (; !over.signal.aborted; answers += 1) {
      expect(await ask()).toBe(accessToken)
      // The client answers from memory, in no turn of its own.
      await setImmediate()
    }
    return answers
  })
  for (let reloads = 0; reloads < 100; reloads += 1) {
    await daemon.reload({
      log: { level: 'info', format: 'json' },
      refresh: { maxAge: `${10 + (reloads % 5)}m` },
    })
  }
  over.abort()
  for (const answered of await Promise.all(asking)) expect(answered).toBeGreaterThan(20)
  expect(daemon.records('reload-failed')).toEqual([])
  expect(world.service.requests).toHaveLength(1)
  expect(tokenFile(daemon)).toBe(accessToken)
})

test('other directories, and HTTP off, take effect at a restart and not before, and that is said each time', async () => {
  const daemon = await world.started()
  const { accessToken } = await tokenOf(daemon)
  const elsewhere = join(world.directory, 'elsewhere')
  const config = { runtimeDirectory: elsewhere, stateDirectory: join(elsewhere, 'state'), http: false }
  for (let reloads = 1; reloads <= 2; reloads += 1) {
    await daemon.reload({ ...config, refresh: { maxAge: `${10 + reloads}m` } })
    await expectUntil('its record', () => daemon.records('reloaded').length === reloads)
    const { needsRestart } = daemon.records('reloaded').at(-1)!
    expect(new Set(needsRestart as string[])).toEqual(new Set(Object.keys(config)))
  }
  expect(existsSync(elsewhere)).toBe(false)
  expect((await tokenOf(daemon)).accessToken).toBe(accessToken)
  expect(tokenFile(daemon)).toBe(accessToken)
  await daemon.end()
  await world.started(config)
  await expectUntil('the token file', () => textOf(join(elsewhere, 'token')) !== undefined)
  expect(existsSync(join(elsewhere, 'http.sock'))).toBe(false)
  const status = await askOnce(join(elsewhere, 'ipc.sock'), 'status.get', {})
  expect(status).toMatchObject({ data: { clients: { http: null } } })
})
