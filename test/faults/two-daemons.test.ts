// Two daemons for the same directories: the first lives, and only that one asks the service.
import { existsSync, readdirSync } from 'node:fs'
import { join } from 'node:path'
import { expect, test } from 'vitest'
import { useDaemons } from '../support/daemon-world.ts'
import { askOnce } from '../support/ipc-client.ts'
import { tokenOf } from '../support/outside.ts'
import { expectUntil } from '../support/until.ts'

const world = useDaemons()

test('of two that are started at once one lives, five times over', async () => {
  for (let round = 1; round <= 5; round += 1) {
    const directory = join(world.directory, String(round))
    const both = [0, 1].map(() => world.start({}, { directory }))
    const status = await Promise.race(both.map((daemon) => daemon.ended()))
    expect(status, both.map((d) => d.stderr()).join()).toBe(69)
    const [loser, winner] = both.toSorted((one) => (one.process.exitCode === null ? 1 : -1))
    if (loser === undefined || winner === undefined) throw new Error('There are two')
    expect(loser.stderr().trim().split('\n')).toHaveLength(1)
    await winner.listening()
    expect((await tokenOf(winner)).state).toBe('ready')
    expect(await askOnce(winner.ipcPath, 'status.get', {})).toMatchObject({
      data: { daemon: { pid: winner.process.pid } },
    })
    expect(world.service.requests).toHaveLength(round)
    expect(await winner.end()).toBe(0)
  }
}, 90_000)

test('of two with one state directory the second ends with 69, names the setting, touches nothing', async () => {
  const stateDirectory = join(world.directory, 'state')
  const start = (folder: string) =>
    world.start({ stateDirectory }, { directory: join(world.directory, folder) })
  const first = start('one')
  await first.listening()
  await tokenOf(first)
  await expectUntil('its last file', () => existsSync(join(stateDirectory, 'state.json')))
  // No file of it is being written now.
  await expectUntil('names that stay', () =>
    readdirSync(stateDirectory).every((file) => !file.endsWith('.kyc')),
  )
  const before = readdirSync(stateDirectory)
  const second = start('two')
  expect(await second.ended()).toBe(69)
  expect(second.stderr()).toBe(
    `Another kyc-tokend runs with ${stateDirectory}: stop it, or set another \`stateDirectory\`\n`,
  )
  expect(readdirSync(stateDirectory)).toEqual(before)
  expect(world.service.requests).toHaveLength(1)
  expect(await first.end('SIGKILL')).toBe('SIGKILL')
  const third = start('two')
  await third.listening()
  expect(await third.end()).toBe(0)
})
