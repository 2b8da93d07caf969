// Programs that read the token once: kyc-tokend-wait.service starts them with one, and kyc-tokend-changed@UNIT.path
// reloads or restarts them for a new one.
import { expect, it } from 'vitest'
import { block } from '../manual/manual.ts'
import { config, describeInstallation } from '../support/installation.ts'
import { expectUntil } from '../support/until.ts'

const TIMER = 'kyc-tokend-changed@billing.service.timer'
const PATH = 'kyc-tokend-changed@billing.service.path'
const CHANGED = 'kyc-tokend-changed@billing.service.service'

describeInstallation('a program that reads the token once', {}, (installation) => {
  const { configure, dropIn, fullToken, journal, scenario, show, sh } = installation
  const refresh = (): Promise<string> => sh('kyc-tokend refresh')
  /** The program's notes at each start and reload. */
  const notes = async (): Promise<string[]> =>
    (await sh('cat /run/notes/all 2>/dev/null || true')).split('\n').filter((line) => line !== '')
  const expectNotes = async (count: number): Promise<string[]> => {
    await expectUntil(`${count} notes`, async () => (await notes()).length >= count)
    const written = await notes()
    expect(written).toHaveLength(count)
    return written
  }
  /** What the program does at a reload. */
  const onReload = (script: string): Promise<void> =>
    dropIn('reload', `[Service]\nExecReload=+/bin/sh -c '${script}'`, 'billing.service')
  const expectState = async (unit: string, state: string): Promise<unknown> =>
    expectUntil(`${unit} to be ${state}`, async () => (await show('ActiveState', unit)) === state)
  /** Resolves once the script has run again and is at its end. */
  const expectRun = async (act: () => Promise<unknown>): Promise<void> => {
    const lastRun = async (): Promise<string> => show('ExecMainExitTimestampMonotonic', CHANGED)
    const before = await lastRun()
    await act()
    await expectUntil('another run', async () => (await lastRun()) !== before)
    await expectState(CHANGED, 'inactive')
    expect(await show('Result', CHANGED)).toBe('success')
  }

  it('waits for a token, also that of an account, and gets it as its credential', async () => {
    await sh('install -d -m 1777 /run/notes')
    await sh('cat >/usr/local/bin/billing; chmod 755 /usr/local/bin/billing', {
      input: '#!/bin/sh\necho "start $(cat "$2")" >>/run/notes/all; exec sleep infinity\n',
    })
    await sh('cat >/etc/systemd/system/billing.service', { input: `${block('wait-unit').code}\n` })
    await dropIn('notes', '[Service]\nReadWritePaths=/run/notes', 'billing.service')
    await installation.startStandIn()
    await scenario('outage')
    await configure(config)
    await sh('systemctl enable --now kyc-tokend; systemctl start --no-block billing')
    await expectState('kyc-tokend-wait.service', 'activating')
    expect(await show('ActiveState', 'billing.service')).toBe('inactive')
    // The daemon asks again by itself.
    await scenario('ok')
    expect(await expectNotes(1)).toEqual([`start ${await fullToken('member')}`])
    expect(await journal('kyc-tokend-wait')).not.toContain('eyJ')
    await configure(config, '/etc/kyc-tokend/accounts/eu.json')
    await sh('systemctl start kyc-tokend@eu.socket kyc-tokend-wait@eu')
    expect(await sh('cat /run/kyc-tokend/accounts/eu/token')).not.toBe('')
  })

  it('is left alone while it has the token that is there, and nothing is logged of looking', async () => {
    await expectRun(async () => installation.follow('read-once'))
    await sh(`systemctl start ${CHANGED}; systemctl start ${CHANGED}`)
    await expectNotes(1)
    expect(await journal(CHANGED)).toBe('')
  })

  it('is restarted with the new token, after a pause of at most 5 s', async () => {
    await expectRun(refresh)
    expect((await expectNotes(2))[1]).toBe(`start ${await fullToken('member')}`)
    expect(await journal(CHANGED)).toBe('The token has changed: billing.service is reloaded or restarted\n')
  })

  it('gets the last token when it changes twice during one slow reload', async () => {
    await dropIn('splay', '[Service]\nEnvironment=KYC_SPLAY=0', CHANGED)
    await onReload(
      'echo "reload $(cat /run/kyc-tokend/token)" >>/run/notes/all; while [ -e /run/hold ]; do sleep 0.05; done',
    )
    // Which would come to help within a minute.
    await sh(`systemctl stop ${TIMER}; rm /run/notes/all; touch /run/hold`)
    await refresh()
    await expectNotes(1)
    await refresh()
    await refresh()
    await expectNotes(1)
    await sh('rm /run/hold')
    expect((await expectNotes(2))[1]).toBe(`reload ${await sh('cat /run/kyc-tokend/token')}`)
    await expectState(CHANGED, 'inactive')
    await expectNotes(2)
  })

  it('is reloaded again when its reload failed', async () => {
    await dropIn('pace', '[Service]\nRestartSec=1s', CHANGED)
    await onReload('echo reload >>/run/notes/all; [ ! -e /run/broken ]')
    await sh('rm /run/notes/all; touch /run/broken')
    await refresh()
    await expectUntil('the second reload', async () => (await notes()).length >= 2)
    await sh('rm /run/broken')
    await expectUntil('the end', async () => (await show('Result', CHANGED)) === 'success')
    await expectState(CHANGED, 'inactive')
  })

  it('stays as it is when the token expires and its file is removed', async () => {
    await sh('rm /run/notes/all')
    // The daemon's file, put away and back under systemd's eyes while the daemon is stopped.
    const [file, away] = ['/run/kyc-tokend/files/token', '/run/kyc-tokend/files/away']
    await expectRun(() => sh(`systemctl kill -s STOP kyc-tokend; mv ${file} ${away}`))
    await expectNotes(0)
    await sh(`rm ${away}; systemctl kill -s CONT kyc-tokend`)
  })

  it('stays stopped', async () => {
    await sh('systemctl stop billing')
    await expectRun(refresh)
    expect(await show('ActiveState', 'billing.service')).toBe('inactive')
  })

  it('gets a token that it has not read, however late the units are enabled', async () => {
    await dropIn('reload', undefined, 'billing.service')
    await sh(`systemctl start billing; systemctl disable --now ${PATH}`)
    expect(await show('ActiveState', TIMER)).toBe('inactive')
    await expectState(CHANGED, 'inactive')
    await sh('rm -r /run/kyc-tokend-changed; kyc-tokend refresh; rm -f /run/notes/all')
    await sh(`systemctl enable --now ${PATH}`)
    expect(await expectNotes(1)).toEqual([`start ${await fullToken('member')}`])
    expect(await show('ActiveState', TIMER)).toBe('active')
  })
})
