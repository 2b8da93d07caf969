// Upgrades from the package that 2.1.0 built: without a reboot, in the new layout, after one request for each account.
import { expect, it } from 'vitest'
import manifest from '../../package.json' with { type: 'json' }
import { config, CONFIG, describeInstallation } from '../support/installation.ts'
import { expectUntil } from '../support/until.ts'

const NOW = manifest.version
const UNITS = 'kyc-tokend.service kyc-tokend.socket kyc-tokend-http.socket kyc-tokend-alert.path'
const EU = '/etc/kyc-tokend/accounts/eu.json'
const DIRECTORIES = ['/run/kyc-tokend', '/run/kyc-tokend/accounts/eu', '/run/kyc-tokend/files']
const NEW_LAYOUT = ['751 root:root', '751 root:root', '751 kyc-tokend:kyc-tokend']
const options = { versions: [NOW], former: ['2.1.0'], isInstalled: false } as const

describeInstallation('an installation of 2.1.0', options, (installation) => {
  const { sh, attempt, show, install, modesOf, configure } = installation
  const token = async (account = ''): Promise<string> =>
    (await sh(`kyc-tokend token --wait 20s ${account && `--account ${account}`}`, { as: 'member' })).trim()

  /** Two accounts that serve; the secret of one is a credential of systemd. */
  async function inUse(): Promise<void> {
    await sh(install('2.1.0'))
    await sh('id member || useradd member; usermod -aG kyc-token member')
    await sh('systemctl is-active stand-in').catch(async () => installation.startStandIn())
    await sh(
      'umask 027; echo sandbox-secret >/etc/kyc-tokend/secret; chgrp kyc-tokend /etc/kyc-tokend/secret',
    )
    const credentials = { apiKey: 'sandbox-key', apiSecret: { file: '/etc/kyc-tokend/secret' } }
    await configure({ ...config, credentials })
    await sh('echo sandbox-secret >/root/eu-secret')
    const line = '[Service]\nLoadCredential=api-secret:/root/eu-secret'
    await installation.dropIn('credentials', line, 'kyc-tokend@eu.service')
    await configure(
      { ...config, credentials: { ...credentials, apiSecret: { credential: 'api-secret' } } },
      EU,
    )
    await sh(`systemctl enable --quiet --now ${UNITS} kyc-tokend@eu`)
    await Promise.all([token(), token('eu')])
    expect((await modesOf('/run/kyc-tokend'))[0]).toBe('3771 root:kyc-token')
  }

  async function expectNewLayout(): Promise<void> {
    const [main, eu] = await Promise.all([token(), token('eu')])
    expect(await modesOf(...DIRECTORIES, '/run/kyc-tokend/ipc.sock')).toEqual([
      ...NEW_LAYOUT,
      '660 root:kyc-token',
    ])
    const read = 'cat /run/kyc-tokend/token; echo; cat /run/kyc-tokend/accounts/eu/token'
    await expectUntil('the files', async () => (await attempt(read, 'member')).stdout === `${main}\n${eu}`)
    expect(await sh(`systemctl is-active ${UNITS} kyc-tokend@eu kyc-tokend@eu.socket`)).toBe(
      'active\n'.repeat(6),
    )
    expect(await sh(`systemctl is-enabled ${UNITS} kyc-tokend@eu.socket`)).toBe('enabled\n'.repeat(5))
    expect(await sh(`find ${DIRECTORIES.join(' ')} -maxdepth 0 -perm /6000`)).toBe('')
    expect(await sh("find /run/kyc-tokend -user kyc-tokend -not -path '*/files*'")).toBe('')
    expect(await sh('id -Gn kyc-tokend')).toContain('kyc-tokend')
  }

  async function expectHeldBack(why: string): Promise<string> {
    const running = (): Promise<unknown> =>
      Promise.all([show('MainPID'), show('MainPID', 'kyc-tokend@eu'), modesOf('/run/kyc-tokend'), token()])
    const before = await running()
    const said = await sh(install(NOW))
    expect(said).toContain(`the former version runs on, in its directory, because of kyc-tokend.service`)
    expect(said).toContain(why)
    expect(await running()).toEqual(before)
    expect(await sh('cat /run/kyc-tokend/token', { as: 'member' })).toBe(await token())
    return said
      .split('\n')
      .filter((line) => line.startsWith('  sudo '))
      .map((line) => line.replace('  sudo ', ''))
      .join('\n')
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
      const commands = await expectHeldBack(why)
      await sh(mend)
      await sh(commands)
      await expectNewLayout()
      await purged()
    },
  )
})
