import { expect, it } from 'vitest'
import { block } from '../manual/manual.ts'
import { config, describeInstallation } from '../support/installation.ts'
import { expectUntil } from '../support/until.ts'

// A program that reads the token once, at its start or at a reload: kyc-tokend-changed@UNIT.path reloads or restarts it for a new one.

describeInstallation('a program that reads the token once', {}, (installation) => {
  const { fullToken, show, attempt } = installation
  const sh: typeof installation.machine.sh = async (...given) => installation.machine.sh(...given)
  const refresh = async (): Promise<void> => void (await sh('kyc-tokend refresh'))
  /** The program's notes at each start and reload. */
  const notes = async (): Promise<string[]> =>
    (await sh('cat /run/notes/all 2>/dev/null || true')).split('\n').filter((line) => line !== '')

  it('begins with a daemon and a program that runs', async () => {
    await installation.startStandIn()
    await installation.configure(config)
    await sh('systemctl enable --now kyc-tokend; useradd member; usermod -aG kyc-token member')
    await sh('cat >/usr/local/bin/billing; chmod 755 /usr/local/bin/billing', {
      input: '#!/bin/sh\necho "start $(cat "$2")" >>/run/notes/all; exec sleep infinity\n',
    })
    await sh('cat >/etc/systemd/system/billing.service', { input: block('read-once-unit').code })
    await installation.dropIn('notes', '[Service]\nReadWritePaths=/run/notes', 'billing.service')
    await sh('install -d -m 1777 /run/notes')
    await installation.follow('read-once')
    expect(await notes()).toEqual([`start ${await fullToken('member')}`])
    const { status, stdout, stderr } = await attempt(
      'systemd-analyze verify kyc-tokend-changed@billing.service.path kyc-tokend-changed@billing.service.service',
    )
    expect({ status, said: stdout + stderr }).toEqual({ status: 0, said: '' })
  })

  it('is restarted with the new token, after a pause of at most 5 s', async () => {
    await refresh()
    const token = await fullToken('member')
    await expectUntil('the restart', async () => (await notes()).length === 2)
    expect((await notes())[1]).toBe(`start ${token}`)
    await expectUntil('the end', async () => (await show('ActiveState', CHANGED)) === 'inactive')
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
    await expectUntil('the end', async () => (await show('ActiveState', CHANGED)) === 'inactive')
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
    await expectUntil('the end', async () => (await show('ActiveState', CHANGED)) === 'inactive')
    await sh('rm -f /run/notes/all')
    const runs = async (): Promise<number> => installation.starts(CHANGED)
    const before = await runs()
    // The daemon's file, put away and back under systemd's eyes while the daemon is stopped.
    await sh('systemctl kill -s STOP kyc-tokend; mv /run/kyc-tokend/token /run/kyc-tokend/away')
    await expectUntil('a run', async () => (await runs()) > before)
    await expectUntil('its end', async () => (await show('ActiveState', CHANGED)) === 'inactive')
    expect(await show('Result', CHANGED)).toBe('success')
    expect(await notes()).toEqual([])
    await sh('rm /run/kyc-tokend/away; systemctl kill -s CONT kyc-tokend')
  })

  it('stays stopped', async () => {
    await sh('systemctl stop billing')
    const before = await installation.starts(CHANGED)
    await refresh()
    await expectUntil('a run', async () => (await installation.starts(CHANGED)) > before)
    await expectUntil('its end', async () => (await show('ActiveState', CHANGED)) === 'inactive')
    expect(await show('Result', CHANGED)).toBe('success')
    expect(await show('ActiveState', 'billing.service')).toBe('inactive')
  })
})

const CHANGED = 'kyc-tokend-changed@billing.service.service'
