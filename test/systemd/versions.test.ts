// Upgrades from the packages that former versions built, and back, while clients ask all the time: the requests to the
// service are counted.
import { copyFileSync } from 'node:fs'
import { expect, it } from 'vitest'
import manifest from '../../package.json' with { type: 'json' }
import { config, CONFIG, describeInstallation } from '../support/installation.ts'
import { expectUntil } from '../support/until.ts'

const NOW = manifest.version
const UNITS = 'kyc-tokend.service kyc-tokend.socket kyc-tokend-http.socket kyc-tokend-alert.path'
/** The accounts, by the port of the stand-in that each asks; the one without a name is the default. */
const PORTS = { '': 8099, eu: 8097, us: 8098 } as const
type Account = keyof typeof PORTS
const options = { versions: [NOW], former: ['1.2.0', '2.0.0'], isInstalled: false } as const

describeInstallation('an installation of a former version', options, (installation) => {
  const { sh, attempt, show, install, modesOf, configure } = installation
  const words = (account: Account): string => (account === '' ? '' : `--account ${account}`)
  const unit = (account: Account): string => (account === '' ? 'kyc-tokend' : `kyc-tokend@${account}`)
  const directory = (account: Account): string => `/run/kyc-tokend${account && `/accounts/${account}`}`
  const token = async (account: Account): Promise<string> =>
    sh(`kyc-tokend token --wait 10s ${words(account)}`, { as: 'member' })
  const tokens = async (): Promise<string[]> => Promise.all([token(''), token('eu')])
  const status = async (account: Account): Promise<number | null> =>
    (await attempt(`kyc-tokend status ${words(account)}`)).status
  const requests = async (): Promise<Record<Account, number>> => {
    // A stand-in may log a request a moment after it was answered.
    await sh('sleep 0.5')
    const [main, eu, us] = await Promise.all(
      ['', 'eu', 'us'].map(async (account) => installation.requests(`stand-in${account && `-${account}`}`)),
    )
    return { '': main!, eu: eu!, us: us! }
  }
  /** Every path that is a fault, as `check` of all accounts says. */
  const faults = async (): Promise<string[]> => {
    const found = await Promise.all(
      (['', 'eu'] as const).map(
        async (account) => (await attempt(`kyc-tokend check ${words(account)}`)).stdout,
      ),
    )
    return found.flatMap((text) => text.split('\n').filter((line) => line.startsWith('FAULT')))
  }

  /** Eight clients of the sockets of each account that serves, who wait for a token where there is none. */
  async function asking(): Promise<() => Promise<{ answered: number; lost: number }[]>> {
    copyFileSync(
      new URL('../support/asking.mjs', import.meta.url),
      installation.machine.path('/usr/asking.mjs'),
    )
    const clients = (['', 'eu'] as const).map((account) => {
      const sockets = ['ipc', 'http'].map((name) => `${directory(account)}/${name}.sock`)
      const child = installation.machine.start(
        ['/usr/lib/kyc-tokend/node', '/usr/asking.mjs', ...sockets, '4', '5', '10'],
        { as: 'member' },
      )
      const said = { text: '' }
      child.stdout?.on('data', (chunk: Buffer) => (said.text += chunk.toString()))
      return { child, said }
    })
    for (const { said } of clients) await expectUntil('the clients', () => said.text.includes('asking'))
    return async () =>
      Promise.all(
        clients.map(async ({ child, said }) => {
          child.stdin?.end()
          await expectUntil('their counts', () => said.text.includes('}'))
          return JSON.parse(/\{.*\}/.exec(said.text)![0]) as { answered: number; lost: number }
        }),
      )
  }

  /** Installs a version while clients ask; gives what it said, once it serves again. */
  async function installed(version: string): Promise<string> {
    const before = await Promise.all(
      (['', 'eu', 'us'] as const).map((account) => show('MainPID', unit(account))),
    )
    const asked = await asking()
    const said = await sh(install(version))
    for (const [index, account] of (['', 'eu', 'us'] as const).entries())
      await installation.restarted(before[index]!, unit(account))
    await tokens()
    for (const { answered, lost } of await asked()) {
      expect(lost).toBe(0)
      expect(answered).toBeGreaterThan(100)
    }
    return said
  }

  /** Two accounts that serve, the second with clients of its own, and one that is refused; drop-ins of all kinds. */
  async function inUse(version: string): Promise<void> {
    await sh(install(version))
    await sh(`id member || useradd member; getent group kyc-token-eu || groupadd --system kyc-token-eu
      usermod -aG kyc-token,kyc-token-eu member
      install -d -m 2750 -o kyc-tokend -g kyc-token /srv/app
      cd /etc/systemd/system
      install -D -m 0644 /usr/share/doc/kyc-tokend/examples/account-group.conf kyc-tokend@eu.socket.d/account-group.conf
      install -D -m 0644 /usr/share/doc/kyc-tokend/examples/account-group.conf kyc-tokend-http@eu.socket.d/account-group.conf
      mkdir -p kyc-tokend.service.d; printf '[Service]\\nReadWritePaths=-/srv/app\\n' >kyc-tokend.service.d/token-files.conf
      systemctl daemon-reload`)
    for (const [account, port] of Object.entries(PORTS)) {
      await installation.startStandIn(`stand-in${account && `-${account}`}`, port)
      const file = account === '' ? CONFIG : `/etc/kyc-tokend/accounts/${account}.json`
      await sh(
        `cd ${file.replace(/[^/]*$/, '')}; umask 027; echo sandbox-secret >${account}secret; chgrp kyc-tokend ${account}secret`,
      )
      const own = account === '' ? [{ path: '/srv/app/token', mode: '0640' }] : []
      const settings = {
        ...config,
        baseUrl: `http://127.0.0.1:${port}`,
        credentials: { apiKey: 'sandbox-key', apiSecret: { file: `${account}secret` } },
        tokenFiles: [...config.tokenFiles, ...own],
      }
      await configure(settings, file)
    }
    await installation.scenario('account-inactive', PORTS.us)
    await sh('systemctl enable --quiet --now kyc-tokend kyc-tokend@eu kyc-tokend@us')
    await tokens()
    await expectUntil('the refusal', async () => (await status('us')) === 77)
  }

  async function purged(): Promise<void> {
    await sh(`dpkg --purge kyc-tokend; systemctl stop 'stand-in*'; rm -rf /etc/systemd/system/kyc-tokend*.d
      journalctl --rotate --vacuum-time=1s; systemctl reset-failed; systemctl daemon-reload`)
  }

  it('without a configuration has no sockets any more', { timeout: 240_000 }, async () => {
    await sh(install('2.0.0'))
    const [, ...others] = UNITS.split(' ')
    expect(await sh(`systemctl is-enabled ${others.join(' ')}`)).toBe('enabled\n'.repeat(3))
    await sh('systemctl start kyc-tokend.socket kyc-tokend-http.socket')
    expect(await sh(install(NOW))).toContain('sudo kyc-tokend setup')
    expect((await attempt(`systemctl is-enabled ${UNITS}`)).stdout).toBe('disabled\n'.repeat(4))
    expect((await attempt(`systemctl is-active ${UNITS}`)).stdout).toBe('inactive\n'.repeat(4))
    await purged()
  })

  it('2.0.0 is upgraded without a request, a lost call or another token', { timeout: 300_000 }, async () => {
    await inUse('2.0.0')
    expect(await modesOf('/run/kyc-tokend', directory('eu'))).toEqual([
      '2751 kyc-tokend:kyc-token',
      '2751 kyc-tokend:kyc-token-eu',
    ])
    // What the daemon's user could have put there, when the directory was its own.
    await sh('mkdir /srv/of-root; runuser -u kyc-tokend -- ln -s /srv/of-root /run/kyc-tokend/accounts/link')
    const sockets = `stat -c '%n %i' ${directory('')}/*.sock ${directory('eu')}/*.sock`
    const [before, held, bound] = [await requests(), await tokens(), await sh(sockets)]
    await installed(NOW)
    expect(await tokens()).toEqual(held)
    // A refused account is asked once at an orderly start.
    expect(await requests()).toEqual({ ...before, us: before.us + 1 })
    expect(await status('us')).toBe(77)
    expect(await sh(sockets)).toBe(bound)
    expect(
      await modesOf('/run/kyc-tokend', '/run/kyc-tokend/accounts', directory('eu'), directory('us')),
    ).toEqual(['3771 root:kyc-token', '751 root:root', '3771 root:kyc-token-eu', '3771 root:kyc-token'])
    expect(await sh('ls -A /srv/of-root; ls /run/kyc-tokend/accounts')).toBe('eu\nus\n')
    expect(await sh(`systemctl is-enabled ${UNITS} kyc-tokend@eu.socket`)).toBe('enabled\n'.repeat(5))
    expect(await faults()).toEqual([])
  })

  it('works then, also after a boot, with the drop-ins of 2.0.0', { timeout: 240_000 }, async () => {
    await sh("systemctl stop 'kyc-tokend*'; rm -r /run/kyc-tokend; systemd-tmpfiles --create kyc-tokend.conf")
    await sh('systemctl start kyc-tokend kyc-tokend@eu kyc-tokend@us')
    const [main, eu] = await tokens()
    expect(await modesOf(directory(''), directory('eu'), `${directory('eu')}/ipc.sock`)).toEqual([
      '3771 root:kyc-token',
      '3771 root:kyc-token-eu',
      '660 kyc-tokend:kyc-token-eu',
    ])
    await expectUntil(
      'the files',
      async () => (await attempt(`test -s ${directory('eu')}/token -a -s /srv/app/token`)).status === 0,
    )
    expect(await sh(`cat /srv/app/token; echo; cat ${directory('eu')}/token`, { as: 'member' })).toBe(
      `${main}${eu!.trim()}`,
    )
    expect(await faults()).toEqual([])
    await sh('systemctl reload kyc-tokend kyc-tokend@eu; kyc-tokend refresh; kyc-tokend refresh --account eu')
  })

  it(
    'does not restart a daemon whose files hold a pair that is not in use',
    { timeout: 240_000 },
    async () => {
      await sh('echo another-secret >/etc/kyc-tokend/secret')
      await attempt('kyc-tokend refresh')
      await expectUntil('the refusal of the pair', async () =>
        (await attempt('kyc-tokend status --json')).stdout.replaceAll(' ', '').includes('"pair":"refused"'),
      )
      const [before, others, held] = [
        await show('MainPID'),
        await show('MainPID', unit('eu')),
        await token(''),
      ]
      const said = await sh(install(NOW))
      expect(said).toContain('kyc-tokend.service was not restarted')
      expect(said).toContain('Correct these files first')
      expect(said).not.toContain('kyc-tokend@eu.service was not restarted')
      await installation.restarted(others, unit('eu'))
      expect(await show('MainPID')).toBe(before)
      await sh('echo sandbox-secret >/etc/kyc-tokend/secret')
      await sh('systemctl restart kyc-tokend')
      expect(await token('')).toBe(held)
    },
  )

  it(
    'goes back to 2.0.0 without a request, and all sockets of all accounts restart',
    { timeout: 300_000 },
    async () => {
      const [before, held] = [await requests(), await tokens()]
      await installed('2.0.0')
      expect(await tokens()).toEqual(held)
      expect(await requests()).toEqual({ ...before, us: before.us + 1 })
      const directories = ['/run/kyc-tokend', '/run/kyc-tokend/accounts', directory('eu'), directory('us')]
      expect(await modesOf(...directories)).toEqual([
        '2751 kyc-tokend:kyc-token',
        '2751 kyc-tokend:kyc-token',
        '2751 kyc-tokend:kyc-token-eu',
        '2751 kyc-tokend:kyc-token',
      ])
      expect(await sh(`getfacl --skip-base --absolute-names ${directories.join(' ')}`)).toBe('')
      await sh("systemctl stop 'kyc-tokend*'")
      const sockets = ['', '@eu', '@us'].flatMap((name) => [
        `kyc-tokend${name}.socket`,
        `kyc-tokend-http${name}.socket`,
      ])
      await sh(`systemctl start ${sockets.join(' ')}`)
      expect(await sh(`systemctl is-active ${sockets.join(' ')}`)).toBe('active\n'.repeat(6))
      expect(await tokens()).toEqual(held)
      expect(await requests()).toEqual({ ...before, us: before.us + 1 })
      await purged()
    },
  )

  it(
    '1.2.0 is upgraded with one request for each account, and no lost call',
    { timeout: 300_000 },
    async () => {
      await inUse('1.2.0')
      const before = await requests()
      await installed(NOW)
      expect(await requests()).toEqual({ '': before[''] + 1, eu: before.eu + 1, us: before.us + 1 })
      expect(await status('us')).toBe(77)
      expect(await faults()).toEqual([])
      expect(await modesOf('/run/kyc-tokend', directory('eu'))).toEqual([
        '3771 root:kyc-token',
        '3771 root:kyc-token-eu',
      ])
    },
  )
})
