// The log in a real journal, from within the unit's sandbox.
import { expect, it } from 'vitest'
import { CONFIG, config, describeInstallation } from '../support/installation.ts'

describeInstallation('the log in the journal', {}, (installation) => {
  const { attempt, configure, expectJournal, follow, scenario, sh } = installation

  it('has each record as a line with its fields and its level', async () => {
    await sh('useradd member; usermod -aG kyc-token member')
    await installation.startStandIn()
    await configure(config)
    await sh('systemctl enable --now kyc-tokend')
    const token = await installation.fullToken('member')
    await expectJournal('kyc-tokend', /^kyc-tokend has started event=started version=/m)
    const started = await sh('journalctl -u kyc-tokend -g event=started -o json')
    expect(JSON.parse(started)).toMatchObject({
      MESSAGE: expect.stringContaining(`configFile=${CONFIG}`) as string,
      PRIORITY: '6',
      SYSLOG_IDENTIFIER: 'kyc-tokend',
    })
    expect(await sh('journalctl -o json')).not.toContain(token)
    expect(await installation.journal('kyc-tokend')).not.toContain('<6>')
  })

  it('answers the questions of an audit', async () => {
    await sh('kyc-tokend reject', { as: 'member' })
    await scenario('account-inactive')
    await attempt('kyc-tokend refresh')
    await scenario('ok')
    await sh('kyc-tokend refresh; systemctl reload kyc-tokend')
    await expectJournal('kyc-tokend', 'event=reloaded')
    const uid = (await sh('id -u member')).trim()
    const taken = await follow('audit-taken')
    expect(taken).toMatch(new RegExp(` uid=${uid} transport=ipc clients=.* count=1$`, 'm'))
    expect(taken).toMatch(new RegExp(`event=token-rejected .*uid=${uid} transport=ipc `))
    const asked = async (events: string): Promise<string> =>
      sh(`journalctl -u kyc-tokend --since -7d -g 'event=${events}'`)
    const given = await asked('(token-obtained|alert)')
    expect(given).toMatch(/ fingerprint=[\da-f]{16} .*expiresAt=\d{4}-/)
    expect(given).toMatch(/event=alert .*reason=account-inactive[^]*event=alert-resolved/)
    expect(await asked('(started|reload|credentials)')).toMatch(/event=started [^]*event=reloaded/)
  })
})
