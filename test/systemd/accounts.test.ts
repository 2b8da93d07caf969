import { expect, it } from 'vitest'
import { block } from '../manual/manual.ts'
import { config, describeInstallation } from '../support/installation.ts'

// Several accounts on one host: one daemon each, from template units.

const TEMPLATES = [
  'kyc-tokend.service',
  'kyc-tokend.socket',
  'kyc-tokend-http.socket',
  'kyc-tokend-alert.path',
  'kyc-tokend-alert.service',
]

describeInstallation('two accounts on a host', {}, (installation) => {
  const { show, expectJournal, attempt, modesOf, sh } = installation
  const token = async (account: string): Promise<string> =>
    sh(`kyc-tokend token --account ${account} --wait 5s`, { as: 'member' })
  const status = async (account: string): Promise<number | null> =>
    (await attempt(`kyc-tokend status --account ${account}`)).status

  it('have units that systemd has nothing to say about, and the same sandbox', async () => {
    const units = TEMPLATES.map((unit) => unit.replace('.', '@eu.')).join(' ')
    expect(await installation.complaintsAbout(units)).toBe('')
    expect(await installation.exposureOf('kyc-tokend@eu.service')).toBeLessThanOrEqual(1.2)
  })

  it('are served by daemons of their own, and one that is refused does the other no harm', async () => {
    await installation.startStandIn('stand-in-eu', 8097)
    await installation.startStandIn('stand-in-us', 8098)
    await sh('useradd member; usermod -aG kyc-token member')
    await sh(`cat >/etc/kyc-tokend/alert-command; chmod 755 /etc/kyc-tokend/alert-command`, {
      input: '#!/bin/sh\necho "called: $KYC_TOKEND_ACCOUNT $1 $(cat)"\n',
    })
    expect(await modesOf('/etc/kyc-tokend/accounts')).toEqual(['750 root:kyc-tokend'])
    for (const [account, port] of [
      ['eu', 8097],
      ['us', 8098],
    ] as const) {
      const credentials = {
        apiKey: { file: `${account}.api-key` },
        apiSecret: { file: `${account}.api-secret` },
      }
      const settings = { ...config, baseUrl: `http://127.0.0.1:${port}`, credentials }
      await sh(
        `cd /root; echo sandbox-key >${account}.api-key; echo sandbox-secret >${account}.api-secret; cat >${account}.json`,
        {
          input: JSON.stringify(settings),
        },
      )
    }
    await installation.scenario('account-inactive', 8098)
    await installation.follow('add-account')
    await attempt(
      `cd /root; ${block('add-account')
        .code.replaceAll('sudo ', '')
        .replaceAll(/\beu\b/g, 'us')}`,
    )

    expect(await token('eu')).toMatch(/^ey/)
    expect(await sh('cat /run/kyc-tokend/accounts/eu/token', { as: 'member' })).toBe(
      (await token('eu')).trim(),
    )
    expect(await status('eu')).toBe(0)
    expect(await status('us')).toBe(77)
    const refused = await attempt('kyc-tokend token --account us', 'member')
    expect({ status: refused.status, stdout: refused.stdout }).toEqual({ status: 77, stdout: '' })
    await installation.expectRequests(1, 'stand-in-eu')
    expect(await installation.follow('use-account', 'member')).toContain(`${await token('eu')}{"accessToken"`)
    expect(await modesOf('/run/kyc-tokend/accounts/eu', '/run/kyc-tokend/accounts/eu/http.sock')).toEqual([
      '751 root:root',
      '660 root:kyc-token',
    ])
    expect(
      await modesOf('/run/kyc-tokend', '/run/kyc-tokend/accounts', '/run/kyc-tokend/accounts/eu/files'),
    ).toEqual(['751 root:root', '751 root:root', '751 kyc-tokend:kyc-tokend'])
    expect(await modesOf('/var/lib/kyc-tokend/accounts/eu')).toEqual(['700 kyc-tokend:kyc-token'])
    expect((await attempt('ls /var/lib/kyc-tokend/accounts', 'member')).status).not.toBe(0)
  })

  it('have directories of root, in which the daemon’s user makes nothing, and a directory that is a link ends it', async () => {
    await sh(`mkdir /srv/of-root; cp -p /etc/kyc-tokend/accounts/us.json /etc/kyc-tokend/accounts/uk.json
      runuser -u kyc-tokend -- ln -s /srv/of-root /var/lib/kyc-tokend/accounts/uk`)
    const before = await modesOf('/srv/of-root')
    for (const made of ['accounts/uk', 'accounts/eu/token.new', 'x'].map(
      (name) => `touch /run/kyc-tokend/${name}`,
    ))
      expect((await attempt(made, 'kyc-tokend')).stderr).toMatch(/Permission denied/)
    await attempt('systemctl start kyc-tokend@uk')
    await expectJournal('kyc-tokend@uk', '/var/lib/kyc-tokend/accounts/uk')
    expect(await show('ExecMainStatus', 'kyc-tokend@uk')).toBe('78')
    expect(await modesOf('/srv/of-root')).toEqual(before)
    await sh(`systemctl stop 'kyc-tokend*@uk.*'; rm -r /srv/of-root /etc/kyc-tokend/accounts/uk.json
      rm -r /run/kyc-tokend/accounts/uk /var/lib/kyc-tokend/accounts/uk`)
  })

  it('call the operator with the name of the account, and only for the one that is concerned', async () => {
    expect(await expectJournal('kyc-tokend-alert@us', 'called: us raised {')).toContain('account-inactive')
    expect(await installation.journal('kyc-tokend-alert@eu')).not.toContain('called')
    await installation.scenario('ok', 8098)
    await sh('kyc-tokend refresh --account us')
    await expectJournal('kyc-tokend-alert@us', 'called: us resolved {')
  })

  it('are in the journal under their names, and each is reloaded by itself', async () => {
    expect(await sh('journalctl --sync; journalctl -t kyc-tokend@eu -o cat')).toContain('event=started')
    await installation.configure(
      { ...config, baseUrl: 'http://example.com' },
      '/etc/kyc-tokend/accounts/us.json',
    )
    expect((await attempt('systemctl reload kyc-tokend@us')).status).not.toBe(0)
    await sh('systemctl reload kyc-tokend@eu')
    expect(await token('eu')).toMatch(/^ey/)
    expect(await show('ActiveState', 'kyc-tokend@us')).toBe('active')
  })

  it('leave the default account alone, which is not installed with them', async () => {
    expect(await show('ActiveState', 'kyc-tokend.service')).toBe('inactive')
    expect((await attempt('test -e /run/kyc-tokend/token')).status).toBe(1)
  })

  it('have clients of their own where the administrator makes a group', async () => {
    await installation.follow('account-group')
    expect((await attempt('kyc-tokend token --account eu', 'member')).status).toBe(77)
    await sh('usermod -aG kyc-token-eu member')
    expect(await token('eu')).toMatch(/^ey/)
    expect(await sh('cat /run/kyc-tokend/accounts/eu/token', { as: 'member' })).toBe(
      (await token('eu')).trim(),
    )
    expect(await modesOf('/run/kyc-tokend/accounts/eu/files/token')).toEqual(['640 kyc-tokend:kyc-token-eu'])
  })

  it('come back where the package is removed and installed again', { timeout: 120_000 }, async () => {
    const units = ['kyc-tokend@eu.service', 'kyc-tokend-http@eu.socket']
    const states = (): Promise<string[]> => Promise.all(units.map((unit) => show('ActiveState', unit)))
    expect(await states()).toEqual(['active', 'active'])
    await sh('dpkg --remove kyc-tokend')
    expect((await attempt("systemctl is-active 'kyc-tokend*'")).stdout).toBe('')
    await sh(installation.install('9.0.0'))
    expect(await token('eu')).toMatch(/^ey/)
    expect(await states()).toEqual(['active', 'active'])
    await sh('rm -r /etc/systemd/system/kyc-tokend*@*.d')
  })

  it('are removed one by one', async () => {
    const remove = block('remove-account')
      .code.replaceAll('sudo ', '')
      .replaceAll(/\beu\b/g, 'us')
    await sh(remove)
    expect((await attempt('kyc-tokend status --account us')).status).toBe(69)
    expect(await show('ActiveState', 'kyc-tokend@us')).not.toBe('active')
    expect(await token('eu')).toMatch(/^ey/)
  })

  it('are removed by purge', async () => {
    await sh('systemctl stop stand-in-eu stand-in-us; dpkg --purge kyc-tokend')
    const left = "find /run /etc/systemd /var/lib/kyc-tokend -name '*kyc-token*' 2>/dev/null || true"
    expect(await sh(left)).toBe('')
    expect(await sh("systemctl list-units --all --no-legend 'kyc-tokend*'")).toBe('')
  })
})
