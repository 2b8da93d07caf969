// Two daemons for the same directories: the first lives, and only that one asks the service.
import { readdirSync } from 'node:fs'
import { join } from 'node:path'
import { expect, test } from 'vitest'
import { useDaemons } from '../support/daemon-world.ts'
import { askOnce } from '../support/ipc-client.ts'
import { tokenOf } from '../support/outside.ts'
import { expectUntil } from '../support/until.ts'

const world = useDaemons()

test('of two that are started at once one lives, five times over', { timeout: 90_000 }, async () => {
  for (let round = 1; round <= 5; round += 1) {
    const directory = join(world.directory, String(round))
    const both = [0, 1].map(() => world.start({}, { directory }))
    expect(await Promise.race(both.map((daemon) => daemon.ended()))).toBe(69)
    const [loser, winner] = both.toSorted((one) => (one.process.exitCode === null ? 1 : -1))
    expect(loser!.stderr().trim().split('\n')).toHaveLength(1)
    await winner!.listening()
    expect((await tokenOf(winner!)).state).toBe('ready')
    expect(await askOnce(winner!.ipcPath, 'status.get', {})).toMatchObject({
      data: { daemon: { pid: winner!.process.pid } },
    })
    expect(world.service.requests).toHaveLength(round)
    expect(await winner!.end()).toBe(0)
  }
})

test('of two with one state directory the second ends with 69, names the setting, touches nothing', async () => {
  const stateDirectory = join(world.directory, 'state')
  const files = (): string[] => readdirSync(stateDirectory)
  const start = (name: string) => world.start({ stateDirectory }, { directory: join(world.directory, name) })
  const first = start('one')
  await first.listening()
  await tokenOf(first)
  await expectUntil('its last file, and none that is being written', () => {
    const names = files()
    return names.includes('state.json') && names.every((file) => !file.endsWith('.kyc'))
  })
  const before = files()
  const second = start('two')
  expect(await second.ended()).toBe(69)
  expect(second.stderr()).toBe(
    `Another kyc-tokend runs with ${stateDirectory}: stop it, or set another \`stateDirectory\`\n`,
  )
  expect(files()).toEqual(before)
  expect(world.service.requests).toHaveLength(1)
  // The lock of a daemon that is killed blocks no start.
  expect(await first.end('SIGKILL')).toBe('SIGKILL')
  const third = start('two')
  await third.listening()
  expect(await third.end()).toBe(0)
})
