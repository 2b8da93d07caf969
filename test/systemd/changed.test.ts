import { expect, it } from 'vitest'
import { block } from '../manual/manual.ts'
import { config, describeInstallation } from '../support/installation.ts'
import { expectUntil } from '../support/until.ts'

// A program that reads the token once, at its start or at a reload: kyc-tokend-changed@UNIT.path reloads or restarts it for a new one.

describeInstallation('a program that reads the token once', {}, (installation) => {
  const { fullToken, show, sh } = installation
  const refresh = async (): Promise<void> => void (await sh('kyc-tokend refresh'))
  /** The program's notes at each start and reload. */
  const notes = async (): Promise<string[]> =>
    (await sh('cat /run/notes/all 2>/dev/null || true')).split('\n').filter((line) => line !== '')

  /** The end of the last run of the script that has ended. */
  const lastRun = async (): Promise<string> => show('ExecMainExitTimestampMonotonic', CHANGED)
  /** Resolves once the script has run again and is at its end. */
  const expectRun = async (before: string): Promise<void> =>
    void (await expectUntil('the end of another run', async () => {
      const [state, run] = [await show('ActiveState', CHANGED), await lastRun()]
      return state === 'inactive' && run !== before
    }))
  /** Resolves when the script does not run. */
  const expectRest = async (): Promise<void> =>
    void (await expectUntil('the end', async () => (await show('ActiveState', CHANGED)) === 'inactive'))
  const runNow = async (): Promise<void> => void (await sh(`systemctl start ${CHANGED}`))

  it('begins with a daemon and a program that runs', async () => {
    await installation.startStandIn()
    await installation.configure(config)
    await sh('systemctl enable --now kyc-tokend; useradd member; usermod -aG kyc-token member')
    await sh('cat >/usr/local/bin/billing; chmod 755 /usr/local/bin/billing', {
      input: '#!/bin/sh\necho "start $(cat "$2")" >>/run/notes/all; exec sleep infinity\n',
    })
    await sh('cat >/etc/systemd/system/billing.service', { input: block('wait-unit').code })
    await installation.dropIn('notes', '[Service]\nReadWritePaths=/run/notes', 'billing.service')
    await sh('install -d -m 1777 /run/notes')
    await installation.follow('read-once')
    expect(await notes()).toEqual([`start ${await fullToken('member')}`])
    expect(await installation.complaintsAbout(`${PATH} ${CHANGED} ${TIMER}`)).toBe('')
  })

  it('is left alone while it has the token that is there, and nothing is logged of looking', async () => {
    await expectRun('0')
    await runNow()
    await runNow()
    expect(await notes()).toHaveLength(1)
    expect(await installation.journal(CHANGED)).toBe('')
  })

  it('is restarted with the new token, after a pause of at most 5 s', async () => {
    await refresh()
    const token = await fullToken('member')
    await expectUntil('the restart', async () => (await notes()).length === 2)
    expect((await notes())[1]).toBe(`start ${token}`)
    await expectRest()
    expect(await installation.journal(CHANGED)).toBe(
      'The token has changed: billing.service is reloaded or restarted\n',
    )
  })

  it('gets the last token when it changes twice during one slow reload', async () => {
    await installation.dropIn('splay', '[Service]\nEnvironment=KYC_SPLAY=0', CHANGED)
    await installation.dropIn(
      'reload',
      `[Service]
      ExecReload=+/bin/sh -c 'echo "reload $(cat /run/kyc-tokend/token)" >>/run/notes/all; while [ -e /run/hold ]; do sleep 0.05; done'`,
      'billing.service',
    )
    await sh('rm /run/notes/all; touch /run/hold')
    await refresh()
    await expectUntil('the slow reload', async () => (await notes()).length === 1)
    await refresh()
    await refresh()
    expect(await notes()).toHaveLength(1)
    await sh('rm /run/hold')
    await expectUntil('the second reload', async () => (await notes()).length === 2)
    expect((await notes())[1]).toBe(`reload ${await sh('cat /run/kyc-tokend/token')}`)
    await expectRest()
    expect(await notes()).toHaveLength(2)
  })

  it('is reloaded again when its reload failed', async () => {
    await installation.dropIn('pace', '[Service]\nRestartSec=1s', CHANGED)
    await installation.dropIn(
      'reload',
      `[Service]
      ExecReload=+/bin/sh -c 'echo "reload" >>/run/notes/all; [ ! -e /run/broken ]'`,
      'billing.service',
    )
    await sh('rm /run/notes/all; touch /run/broken')
    await refresh()
    await expectUntil('the second reload', async () => (await notes()).length >= 2)
    await sh('rm /run/broken')
    await expectUntil('the end', async () => (await show('Result', CHANGED)) === 'success')
  })

  it('stays as it is when the token expires and its file is removed', async () => {
    await expectRest()
    await sh('rm -f /run/notes/all')
    const before = await lastRun()
    // The daemon's file, put away and back under systemd's eyes while the daemon is stopped.
    await sh('systemctl kill -s STOP kyc-tokend; mv /run/kyc-tokend/files/token /run/kyc-tokend/files/away')
    await expectRun(before)
    expect(await show('Result', CHANGED)).toBe('success')
    expect(await notes()).toEqual([])
    await sh('rm /run/kyc-tokend/files/away; systemctl kill -s CONT kyc-tokend')
  })

  it('stays stopped', async () => {
    await sh('systemctl stop billing')
    const before = await lastRun()
    await refresh()
    await expectRun(before)
    expect(await show('Result', CHANGED)).toBe('success')
    expect(await show('ActiveState', 'billing.service')).toBe('inactive')
  })

  it('gets a token that it has not read, however late the units are enabled', async () => {
    await installation.dropIn('reload', undefined, 'billing.service')
    await sh('systemctl start billing')
    await sh('systemctl disable --now kyc-tokend-changed@billing.service.path')
    expect(await show('ActiveState', TIMER)).toBe('inactive')
    await expectRest()
    await sh('rm -r /run/kyc-tokend-changed')
    await refresh()
    const { length } = await notes()
    await sh('systemctl enable --now kyc-tokend-changed@billing.service.path')
    await expectUntil('the restart', async () => (await notes()).length > length)
    expect((await notes()).at(-1)).toBe(`start ${await fullToken('member')}`)
    expect(await show('ActiveState', TIMER)).toBe('active')
  })
})

const TIMER = 'kyc-tokend-changed@billing.service.timer'
const PATH = 'kyc-tokend-changed@billing.service.path'
const CHANGED = 'kyc-tokend-changed@billing.service.service'
