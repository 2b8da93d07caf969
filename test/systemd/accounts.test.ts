import { expect, it } from 'vitest'
import { block } from '../manual/manual.ts'
import { config, describeInstallation } from '../support/installation.ts'

// Several accounts on one host: one daemon each, from template units.

const RUN = '/run/kyc-tokend/accounts/eu'

/** A block of the manual, for the account `us`. */
const blockOfUs = (name: string): string =>
  block(name)
    .code.replaceAll('sudo ', '')
    .replaceAll(/\beu\b/g, 'us')

describeInstallation('two accounts on a host', {}, (installation) => {
  const { configure, show, expectJournal, attempt, modesOf, sh } = installation
  const status = async (account: string): Promise<number | null> =>
    (await attempt(`kyc-tokend status --account ${account}`)).status
  /** The token of `eu` as a member of its clients gets it, which is in the file, too. */
  async function served(): Promise<string> {
    const held = (await sh('kyc-tokend token --account eu --wait 5s', { as: 'member' })).trim()
    expect(held).toMatch(/^ey/)
    expect(await sh(`cat ${RUN}/token`, { as: 'member' })).toBe(held)
    return held
  }

  it('are served by daemons of their own, and one that is refused does the other no harm', async () => {
    await sh(`cat >/etc/kyc-tokend/alert-command; chmod 755 /etc/kyc-tokend/alert-command`, {
      input: '#!/bin/sh\necho "called: $KYC_TOKEND_ACCOUNT $1 $(cat)"\n',
    })
    expect(await modesOf('/etc/kyc-tokend/accounts')).toEqual(['750 root:kyc-tokend'])
    for (const [account, port] of Object.entries({ eu: 8097, us: 8098 })) {
      await installation.startStandIn(`stand-in-${account}`, port)
      const credentials = {
        apiKey: { file: `${account}.api-key` },
        apiSecret: { file: `${account}.api-secret` },
      }
      await sh(`cd /root; echo sandbox-key >${account}.api-key; echo sandbox-secret >${account}.api-secret`)
      await configure(
        { ...config, baseUrl: `http://127.0.0.1:${port}`, credentials },
        `/root/${account}.json`,
      )
    }
    await installation.scenario('account-inactive', 8098)
    await installation.follow('add-account')
    await attempt(`cd /root; ${blockOfUs('add-account')}`)

    const held = await served()
    expect([await status('eu'), await status('us')]).toEqual([0, 77])
    expect(await attempt('kyc-tokend token --account us', 'member')).toMatchObject({ status: 77, stdout: '' })
    await installation.expectRequests(1, 'stand-in-eu')
    expect(await installation.follow('use-account', 'member')).toContain(`${held}\n{"accessToken"`)
    const places = [RUN, `${RUN}/http.sock`, `${RUN}/files`, '/var/lib/kyc-tokend/accounts/eu']
    expect(await modesOf('/run/kyc-tokend', '/run/kyc-tokend/accounts', ...places)).toEqual([
      ...Array<string>(3).fill('751 root:root'),
      '660 root:kyc-token',
      '751 kyc-tokend:kyc-tokend',
      '700 kyc-tokend:kyc-token',
    ])
    expect((await attempt('ls /var/lib/kyc-tokend/accounts', 'member')).status).not.toBe(0)
  })

  it('have directories of root, in which the daemon’s user makes nothing, and a directory that is a link ends it', async () => {
    await sh(`mkdir /srv/of-root; cp -p /etc/kyc-tokend/accounts/us.json /etc/kyc-tokend/accounts/uk.json
      runuser -u kyc-tokend -- ln -s /srv/of-root /var/lib/kyc-tokend/accounts/uk`)
    const before = await modesOf('/srv/of-root')
    for (const made of [`${RUN}/../uk`, `${RUN}/token.new`, '/run/kyc-tokend/x'])
      expect((await attempt(`touch ${made}`, 'kyc-tokend')).stderr).toMatch(/Permission denied/)
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
    await configure({ ...config, baseUrl: 'http://example.com' }, '/etc/kyc-tokend/accounts/us.json')
    expect((await attempt('systemctl reload kyc-tokend@us')).status).not.toBe(0)
    await sh('systemctl reload kyc-tokend@eu')
    expect(await show('ActiveState', 'kyc-tokend@us')).toBe('active')
    // The default one is not installed with them.
    expect(await show('ActiveState', 'kyc-tokend.service')).toBe('inactive')
    expect((await attempt('test -e /run/kyc-tokend/token')).status).toBe(1)
  })

  it('have clients of their own where the administrator makes a group', async () => {
    await installation.follow('account-group')
    expect((await attempt('kyc-tokend token --account eu', 'member')).status).toBe(77)
    await sh('usermod -aG kyc-token-eu member')
    await served()
    expect(await modesOf(`${RUN}/files/token`)).toEqual(['640 kyc-tokend:kyc-token-eu'])
  })

  it('come back where the package is removed and installed again', async () => {
    const states = (): Promise<string> =>
      sh('systemctl is-active kyc-tokend@eu.service kyc-tokend-http@eu.socket')
    expect(await states()).toBe('active\nactive\n')
    await sh('dpkg --remove kyc-tokend')
    expect((await attempt("systemctl is-active 'kyc-tokend*'")).stdout).toBe('')
    await sh(installation.install('9.0.0'))
    await served()
    expect(await states()).toBe('active\nactive\n')
    await sh('rm -r /etc/systemd/system/kyc-tokend*@*.d')
  })

  it('are removed one by one, and by purge', async () => {
    await sh(blockOfUs('remove-account'))
    expect(await status('us')).toBe(69)
    expect(await show('ActiveState', 'kyc-tokend@us')).not.toBe('active')
    await served()
    await sh('systemctl stop stand-in-eu stand-in-us; dpkg --purge kyc-tokend')
    const left = "find /run /etc/systemd /var/lib/kyc-tokend -name '*kyc-token*' 2>/dev/null || true"
    expect(await sh(left)).toBe('')
    expect(await sh("systemctl list-units --all --no-legend 'kyc-tokend*'")).toBe('')
  })
})
