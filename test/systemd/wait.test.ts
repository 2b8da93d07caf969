// Units that may start only with a token: kyc-tokend-wait.service, and LoadCredential= of the token file.
import { expect, it } from 'vitest'
import { block } from '../manual/manual.ts'
import { config, describeInstallation } from '../support/installation.ts'
import { expectUntil } from '../support/until.ts'

describeInstallation('a unit that may start only with a token', {}, (installation) => {
  const { configure, expectJournal, scenario, show, sh } = installation

  it('waits until there is one, and gets it as its credential', async () => {
    const program = '#!/bin/sh\necho "$1 has $(cat "$2")"; exec sleep infinity\n'
    await sh('cat >/usr/local/bin/billing; chmod 755 /usr/local/bin/billing', { input: program })
    await sh('cat >/etc/systemd/system/billing.service', { input: `${block('wait-unit').code}\n` })
    await installation.startStandIn()
    await scenario('outage')
    await configure(config)
    await sh('systemctl daemon-reload; systemctl start kyc-tokend; systemctl start --no-block billing')
    await expectUntil(
      'it to wait',
      async () => (await show('ActiveState', 'kyc-tokend-wait.service')) === 'activating',
    )
    expect(await show('ActiveState', 'billing.service')).toBe('inactive')
    await scenario('ok')
    await sh('kyc-tokend refresh')
    await expectUntil('its start', async () => (await show('ActiveState', 'billing.service')) === 'active')
    await expectJournal('billing', /--token-file has ey\S+$/m)
    expect(await installation.journal('kyc-tokend-wait')).not.toContain('eyJ')
    expect(await installation.complaintsAbout('billing.service')).toBe('')
  })

  it('waits for an account, too', async () => {
    await configure(config, '/etc/kyc-tokend/accounts/eu.json')
    await sh('systemctl start kyc-tokend@eu.socket kyc-tokend-wait@eu')
    expect(await sh('cat /run/kyc-tokend/accounts/eu/token')).not.toBe('')
  })
})
