// The commands on a host with systemd and a daemon of the system, in a mount namespace: its /run and /etc, and another `systemctl`.
import { spawnSync } from 'node:child_process'
import { mkdirSync, symlinkSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'
import { describe, expect, it } from 'vitest'
import { setupFiles } from '../../src/commands/setup-files.ts'
import { commandWorld } from '../support/command-world.ts'
import { PROGRAM } from '../support/daemon.ts'
import { lacks } from '../support/lacks.ts'
import { accountInactive, refusing } from '../support/service.ts'
import { canMount } from '../support/small-disk.ts'
import { tempDirectory } from '../support/temp-directory.ts'

/** Prints the properties of the unit that are asked for. */
const SYSTEMCTL = `#!/bin/sh
for word; do grep "^$word=" "$(dirname "$0")/unit"; done
exit 0
`

/** Runs a command where the unit has these properties, and the daemons of the system and of its accounts these sockets. */
async function onHost(
  words: readonly string[],
  {
    unit = {},
    socket,
    accounts = {},
  }: {
    unit?: Readonly<Record<string, string>>
    socket?: string
    accounts?: Readonly<Record<string, string>>
  },
): Promise<{ status: number | null; stdout: string; stderr: string }> {
  const directory = await tempDirectory()
  const under = (...path: string[]): string => join(directory, ...path)
  for (const made of ['run/systemd/system', 'run/kyc-tokend', 'etc/kyc-tokend', 'sbin'])
    mkdirSync(under(made), { recursive: true })
  if (socket !== undefined) symlinkSync(socket, under('run/kyc-tokend/ipc.sock'))
  for (const [name, path] of Object.entries(accounts)) {
    mkdirSync(under('run/kyc-tokend/accounts', name), { recursive: true })
    symlinkSync(path, under('run/kyc-tokend/accounts', name, 'ipc.sock'))
  }
  writeFileSync(under('etc/kyc-tokend/kyc-tokend.config.json'), '{}')
  writeFileSync(under('sbin/systemctl'), SYSTEMCTL, { mode: 0o755 })
  const properties = Object.entries(unit).map(([name, value]) => `${name}=${value}\n`)
  writeFileSync(under('sbin/unit'), properties.join(''))
  const inside =
    'for name in run etc; do mount --bind "$0/$name" "/$name"; done; mount --bind "$0/sbin" /usr/sbin; exec "$@"'
  const args = ['--mount', 'sh', '-euc', inside, directory, ...PROGRAM, ...words]
  return spawnSync('unshare', args, { encoding: 'utf8', env: { PATH: process.env['PATH'] } })
}

describe.skipIf(!canMount || lacks('unshare'))('on a host with systemd', () => {
  it('`status --all` names the daemon of the system, which is of no account, and its state', async () => {
    const { daemon, cli } = await commandWorld()
    await cli(['token'])
    const people = await onHost(['status', '--all'], { socket: daemon.ipcPath })
    expect(people).toMatchObject({ status: 0, stderr: '' })
    expect(people.stdout).toMatch(/^\(default\) {2}ready +\d.* left\n$/)
    const programs = await onHost(['status', '--all', '--json'], { socket: daemon.ipcPath })
    expect(JSON.parse(programs.stdout)).toMatchObject({
      account: null,
      status: { state: 'ready' },
      problem: null,
    })
  })

  it('`status --all` ends with the worst status: a refusal before no token before no daemon', async () => {
    const down = await commandWorld({ answer: refusing(503, 'Unavailable') })
    const refused = await commandWorld({ answer: accountInactive })
    await refused.daemon.logged('alert')
    const [eu, uk, us] = ['/nowhere', down.daemon.ipcPath, refused.daemon.ipcPath]
    expect((await onHost(['status', '--all'], { accounts: { eu } })).status).toBe(69)
    expect((await onHost(['status', '--all'], { accounts: { eu, uk } })).status).toBe(75)
    expect((await onHost(['status', '--all'], { accounts: { eu, uk, us } })).status).toBe(77)
  })

  const stopped = { LoadState: 'loaded', ActiveState: 'inactive', Result: 'success', ExecMainStatus: '0' }
  it.each([
    ['enabled', 'start'],
    ['disabled', 'enable --now'],
  ])('`status` says how a unit that is stopped and %s is started', async (UnitFileState, words) => {
    const { stderr } = await onHost(['status'], { unit: { ...stopped, UnitFileState } })
    expect(stderr).toContain(`kyc-tokend.service is inactive: \`sudo systemctl ${words} kyc-tokend\`.`)
  })

  it('`status` says nothing of a unit that is not installed', async () => {
    const { status, stderr } = await onHost(['status'], { unit: { ...stopped, LoadState: 'not-found' } })
    expect(status).toBe(69)
    expect(stderr).not.toContain('kyc-tokend.service')
  })
})

it('root sets up the daemon of the system, anyone else one in the working directory', async () => {
  const directory = process.geteuid!() === 0 ? '/etc/kyc-tokend' : '/somewhere'
  expect((await setupFiles(undefined, '/somewhere')).apiKey).toBe(join(directory, 'api-key'))
})
