// Upgrades from the package that 2.1.0 built: without a reboot, in the new layout, after one request for each account.
import { expect, it } from 'vitest'
import manifest from '../../package.json' with { type: 'json' }
import { config, CONFIG, describeInstallation } from '../support/installation.ts'
import { expectUntil } from '../support/until.ts'

const NOW = manifest.version
const UNITS = 'kyc-tokend.service kyc-tokend.socket kyc-tokend-http.socket kyc-tokend-alert.path'
const NEW_LAYOUT = {
  '/run/kyc-tokend': '751 root:root',
  '/run/kyc-tokend/ipc.sock': '660 root:kyc-token',
  '/run/kyc-tokend/files': '751 kyc-tokend:kyc-tokend',
  '/run/kyc-tokend/accounts/eu': '751 root:root',
}

const PACKAGES = { versions: [NOW, '2.1.0'], isInstalled: false }

describeInstallation('an installation of 2.1.0', PACKAGES, (installation) => {
  const { sh, attempt, install, modesOf, configure } = installation
  const token = async (account = ''): Promise<string> =>
    (await sh(`kyc-tokend token --wait 20s ${account && `--account ${account}`}`, { as: 'member' })).trim()

  /** Two accounts that serve; the secret of one is a credential of systemd. */
  async function inUse(): Promise<void> {
    await sh(install('2.1.0'))
    await sh('id member || useradd member; usermod -aG kyc-token member')
    await sh('systemctl is-active stand-in').catch(async () => installation.startStandIn())
    await sh(`umask 027; echo sandbox-secret | tee /root/eu-secret >/etc/kyc-tokend/secret
        chgrp kyc-tokend /etc/kyc-tokend/secret`)
    const credentials = { apiKey: 'sandbox-key', apiSecret: { file: '/etc/kyc-tokend/secret' } }
    await configure({ ...config, credentials })
    const line = '[Service]\nLoadCredential=api-secret:/root/eu-secret'
    await installation.dropIn('credentials', line, 'kyc-tokend@eu.service')
    const ofEu = { ...credentials, apiSecret: { credential: 'api-secret' } }
    await configure({ ...config, credentials: ofEu }, '/etc/kyc-tokend/accounts/eu.json')
    await sh(`systemctl enable --quiet --now ${UNITS} kyc-tokend@eu`)
    await Promise.all([token(), token('eu')])
    expect((await modesOf('/run/kyc-tokend'))[0]).toBe('3771 root:kyc-token')
  }

  async function expectNewLayout(): Promise<void> {
    const [main, eu] = await Promise.all([token(), token('eu')])
    expect(await modesOf(...Object.keys(NEW_LAYOUT))).toEqual(Object.values(NEW_LAYOUT))
    const read = 'cat /run/kyc-tokend/token; echo; cat /run/kyc-tokend/accounts/eu/token'
    await expectUntil('the files', async () => (await attempt(read, 'member')).stdout === `${main}\n${eu}`)
    expect(await sh(`systemctl is-active ${UNITS} kyc-tokend@eu.s*`)).toBe('active\n'.repeat(6))
    expect(await sh(`systemctl is-enabled ${UNITS} kyc-tokend@eu.socket`)).toBe('enabled\n'.repeat(5))
    expect(await sh("find /run/kyc-tokend -user kyc-tokend -not -path '*/files*'")).toBe('')
  }

  async function purged(): Promise<void> {
    await sh('dpkg --purge kyc-tokend; systemctl reset-failed; systemctl daemon-reload')
  }

  it('is upgraded to the new layout, with one request for each account', { timeout: 240_000 }, async () => {
    await inUse()
    await installation.expectRequests(2)
    await sh(install(NOW))
    await expectNewLayout()
    await installation.expectRequests(4)
    // Once more it restarts, and keeps the tokens.
    const held = await token()
    await sh(install(NOW))
    await expectNewLayout()
    expect(await token()).toBe(held)
    await installation.expectRequests(4)
    await purged()
  })

  it.each([
    [
      'its configuration is faulty',
      `sed -i 's/"baseUrl":"http:/"baseUrl":"ftp:/' ${CONFIG}`,
      `sed -i 's/"ftp:/"http:/' ${CONFIG}`,
    ],
    [
      'its files hold a key and a secret that it does not use',
      'echo another-secret >/etc/kyc-tokend/secret; kyc-tokend refresh || true',
      'echo sandbox-secret >/etc/kyc-tokend/secret',
    ],
  ])(
    'stays as it is, and serves, where %s; the printed commands upgrade it',
    { timeout: 240_000 },
    async (why, spoil, mend) => {
      await inUse()
      await sh(spoil)
      const pids = (): Promise<string> => sh('systemctl show -p MainPID kyc-tokend kyc-tokend@eu')
      const running = (): Promise<unknown> => Promise.all([pids(), modesOf('/run/kyc-tokend'), token()])
      const before = await running()
      const said = await sh(install(NOW))
      expect(said).toContain('the former version runs on, in its directory, because of kyc-tokend.service')
      expect(said).toContain(why)
      expect(await running()).toEqual(before)
      expect(await sh('cat /run/kyc-tokend/token', { as: 'member' })).toBe(await token())
      await sh(mend)
      await sh([...said.matchAll(/^  sudo (.*)$/gm)].map(([, command]) => command).join('\n'))
      await expectNewLayout()
      await purged()
    },
  )
})
