import { copyFileSync, readdirSync } from 'node:fs'
import path from 'node:path'
import { expect, it, onTestFinished } from 'vitest'
import { config, CONFIG, describeInstallation } from '../support/installation.ts'
import { expectUntil } from '../support/until.ts'

// One machine for the life of an installation, from dpkg -i to dpkg --purge: the tests build on each other.

const UNITS = 'kyc-tokend.service kyc-tokend.socket kyc-tokend-http.socket kyc-tokend-alert.path'
const PLACES = [
  '/run/kyc-tokend',
  '/run/kyc-tokend/ipc.sock',
  '/run/kyc-tokend/http.sock',
  '/run/kyc-tokend/files',
  '/run/kyc-tokend/files/token',
  '/var/lib/kyc-tokend',
  CONFIG,
]
const options = { isInstalled: false }

describeInstallation('kyc-tokend as a service', options, (installation) => {
  const { install, configure, scenario, requests, fullToken, expectJournal, show, modesOf } = installation
  const { sh, run, attempt } = installation

  it('is installed, says what is next, and waits for a configuration', async () => {
    const output = await sh(install('9.0.0'))
    expect(output).toContain('Next:')
    expect(output).toContain('sudo kyc-tokend setup')
    expect((await run(['systemctl', 'is-active', ...UNITS.split(' ')])).stdout).not.toMatch(/^active/m)
    expect((await attempt(`systemctl is-enabled ${UNITS}`)).stdout).toBe('disabled\n'.repeat(4))
    // Installed once more, it has not become the administrator's will.
    await sh(install('9.0.0'))
    expect((await attempt(`systemctl is-enabled ${UNITS}`)).stdout).toBe('disabled\n'.repeat(4))
    expect(await attempt('test -e /run/kyc-tokend')).toMatchObject({ status: 1 })
    await sh('useradd member; usermod -aG kyc-token member; useradd stranger')
  })

  it('has units that systemd has nothing to say about, and a tight sandbox', async () => {
    expect(await installation.complaintsAbout(`${UNITS} kyc-tokend-alert.service`)).toBe('')
    expect(await installation.exposureOf('kyc-tokend.service')).toBeLessThanOrEqual(1.2)
    for (const [property, value] of Object.entries({
      RestartPreventExitStatus: '64 69 78',
      RestartUSec: '3s',
      // Many failures must not end the sockets.
      StartLimitIntervalUSec: '0',
    }))
      expect(await show(property), property).toBe(value)
    expect(await installation.exposureOf('kyc-tokend-alert.service')).toBeLessThanOrEqual(1.5)
  })

  it('starts with a configuration, and says how it is', async () => {
    await installation.startStandIn()
    await configure(config)
    await sh('kyc-tokend check --config-only')
    await sh('systemctl enable --now kyc-tokend')
    expect(await show('StatusText')).not.toBe('')
    expect(await sh('kyc-tokend status')).toMatch(/ready/i)
    await expectRequests(1)
  })

  it('gives the token to members of the clients’ group, and nothing else', async () => {
    const token = await fullToken('member')
    expect(token).toMatch(/^ey/)
    expect(await sh('cat /run/kyc-tokend/token', { as: 'member' })).toBe(token)
    expect(await overHttp('member')).toContain(token)
    for (const file of [CONFIG, '/var/lib/kyc-tokend/.'])
      expect((await run(['cat', file], { as: 'member' })).stderr).toContain('Permission denied')
    expect(await modesOf(...PLACES)).toEqual([
      '751 root:root',
      '660 root:kyc-token',
      '660 root:kyc-token',
      '751 kyc-tokend:kyc-tokend',
      '640 kyc-tokend:kyc-token',
      '700 kyc-tokend:kyc-tokend',
      '640 root:kyc-tokend',
    ])
    expect(await sh('readlink /run/kyc-tokend/token /run/kyc-tokend/alert.json')).toBe(
      'files/token\nfiles/alert.json\n',
    )
  })

  it.each([
    ['a restart', 'systemctl restart kyc-tokend'],
    ['a stop and a start of all', `systemctl stop ${UNITS}; systemctl start ${UNITS}`],
    ['a new start of systemd', 'systemctl daemon-reexec; systemctl restart kyc-tokend'],
    ['a removal of the token file', 'rm /run/kyc-tokend/files/token; systemctl restart kyc-tokend'],
  ])('serves the same token after %s, without a request, with the same owners and modes', async (_, act) => {
    const [token, modes] = [await fullToken('member'), await modesOf(...PLACES)]
    await sh(act)
    expect(await fullToken('member')).toBe(token)
    await expectUntil(
      'the file',
      async () => (await run(['cat', '/run/kyc-tokend/token'], { as: 'member' })).stdout === token,
    )
    expect(await modesOf(...PLACES)).toEqual(modes)
    await expectRequests(1)
  })

  it('serves again where somebody removed its directory, after a start', async () => {
    await sh(`systemctl stop ${UNITS}; rm -rf /run/kyc-tokend; systemctl start kyc-tokend`)
    const token = await fullToken('member')
    await expectUntil(
      'the file',
      async () => (await run(['cat', '/run/kyc-tokend/token'], { as: 'member' })).stdout === token,
    )
    expect(await modesOf('/run/kyc-tokend', '/run/kyc-tokend/files')).toEqual([
      '751 root:root',
      '751 kyc-tokend:kyc-tokend',
    ])
    // The token was in it.
    await expectRequests(2)
  })

  it('gives nothing to anybody else', async () => {
    for (const command of ['token', 'status'])
      expect(await run(['kyc-tokend', command], { as: 'stranger' })).toMatchObject({ status: 77, stdout: '' })
    const { stderr } = await run(['cat', '/run/kyc-tokend/token'], { as: 'stranger' })
    expect(stderr).toContain('Permission denied')
  })

  it('reloads a good configuration, and keeps the running one against a faulty one', async () => {
    await configure({ ...config, log: { level: 'debug' } })
    await sh('systemctl reload kyc-tokend')
    await expectJournal('kyc-tokend', 'event=reloaded')
    await configure({ ...config, refresh: { maxAge: 15 } })
    const { status } = await run(['systemctl', 'reload', 'kyc-tokend'])
    expect(status).not.toBe(0)
    await expectJournal('kyc-tokend', 'refresh.maxAge')
    expect(await fullToken('member')).toMatch(/^ey/)
    await configure(config)
    await sh('systemctl reload kyc-tokend')
    expect(await overHttp('member')).toContain(await fullToken('member'))
    await expectRequests(2)
  })

  it('is there again after a kill, with the same token, for a client that asked in between', async () => {
    const before = await fullToken('member')
    await sh('systemctl kill --signal=KILL --kill-whom=main kyc-tokend')
    expect(await fullToken('member')).toBe(before)
    expect(await show('NRestarts')).toBe('1')
    await expectRequests(2)
  })

  it('alerts an operator when the account is not active, and asks no more', async () => {
    await sh(`cat >/etc/kyc-tokend/alert-command; chmod 755 /etc/kyc-tokend/alert-command`, {
      input: '#!/bin/sh\necho "called: $#:$1: $(cat)"\nid -Gn\ncat /run/kyc-tokend/token || true\n',
    })
    const before = await requests()
    await scenario('account-inactive')
    expect((await run(['kyc-tokend', 'refresh'])).status).toBe(77)
    await expectRequests(before + 1)
    await expectJournal('kyc-tokend -p alert', 'account-inactive')
    const called = await expectJournal('kyc-tokend-alert', '/run/kyc-tokend/token: Permission denied')
    expect(called).toMatch(/called: 1:raised: .*"reason": ?"account-inactive"/)
    expect(called).not.toContain('kyc-token ')
    expect(await modesOf('/run/kyc-tokend/files/alert.json')).toEqual(['644 kyc-tokend:kyc-token'])

    await sh('systemctl kill --signal=KILL --kill-whom=main kyc-tokend')
    await expectUntil('the daemon after its crash', async () => (await show('ActiveState')) === 'active')
    expect((await run(['kyc-tokend', 'status'])).status).toBe(77)
    await expectRequests(before + 1)

    await scenario('ok')
    await sh('kyc-tokend refresh')
    await expectJournal('kyc-tokend-alert', 'called: 1:resolved: {')
    await expectRequests(before + 2)
    expect(await sh('systemctl is-active kyc-tokend-alert.path')).toBe('active\n')
  })

  it(
    'ends over a faulty configuration while a client keeps trying, and starts when it is corrected',
    { timeout: 120_000 },
    async () => {
      await configure({ ...config, baseUrl: 'http://example.com' })
      const { status } = await run(['systemctl', 'restart', 'kyc-tokend'])
      expect(status).not.toBe(0)
      expect(await show('ExecMainStatus')).toBe('78')
      const starts = async (): Promise<number> =>
        (await installation.journal('kyc-tokend')).split('\nStarting ').length
      const [startsBefore, begunMs] = [await starts(), Date.now()]
      while ((await starts()) < startsBefore + 2) {
        const client = await run(['kyc-tokend', 'token', '--wait', '1s'], { as: 'member' })
        expect(client).toMatchObject({ status: 69, stdout: '' })
      }
      // Each start takes 2 s.
      expect(Date.now() - begunMs).toBeGreaterThan(2_000)
      expect(await sh('systemctl is-active kyc-tokend.socket kyc-tokend-http.socket')).toBe(
        'active\nactive\n',
      )
      await expectJournal('kyc-tokend', 'baseUrl')
      await configure(config)
      await sh('systemctl restart kyc-tokend')
      expect(await fullToken('member')).toMatch(/^ey/)
    },
  )

  it('is really forbidden what its sandbox forbids', async () => {
    copyFileSync(
      path.join(import.meta.dirname, 'probe.cjs'),
      installation.machine.path('/usr/lib/kyc-tokend/probe.cjs'),
    )
    onTestFinished(async () => void (await run(['rm', '-f', '/usr/lib/kyc-tokend/probe.cjs'])))
    // The same unit with another program, and without what makes it the daemon.
    await sh(`
      sed -e '/^ExecStart=/s/cli.cjs run/probe.cjs/' -e 's/^Type=.*/Type=oneshot/' -e '/^Restart/d' \\
        -e '/^WatchdogSec/d' -e '/^Sockets/d' -e '/^Requires/d' -e '/^ExecReload/d' \\
        /usr/lib/systemd/system/kyc-tokend.service >/run/systemd/system/probe.service
      systemctl daemon-reload
      systemctl start probe`)
    const found = /^\{.*\}$/m.exec(await expectJournal('probe', '}\n'))
    expect(JSON.parse(found![0])).toEqual({
      'execute /usr/bin/true': 'EACCES',
      'execute in /run/kyc-tokend/files': 'EACCES',
      'execute in /tmp': 'EACCES',
      'write /etc/kyc-tokend/x': 'EROFS',
      'write /run/x': 'EACCES',
      'write /run/kyc-tokend/x': 'EACCES',
      'write /run/kyc-tokend/files/x': 'allowed',
      'write /var/lib/x': 'EROFS',
      'write /var/lib/kyc-tokend/x': 'allowed',
      'look at process 1': 'ENOENT',
      'writable and executable memory': 'EPERM',
      'executable memory later': 'EPERM',
      'setuid(0)': 'EPERM',
      'a user namespace': 'EPERM',
      'a set-user-id file': 'EPERM',
    })
  })

  it(
    'is purged without a trace, but user, groups and links of the administrator',
    { timeout: 120_000 },
    async () => {
      await sh('systemctl enable kyc-tokend-metrics.socket')
      const link = '/etc/systemd/system/multi-user.target.wants/token.service'
      await sh(`ln -s /lib/systemd/system/kyc-tokend.service ${link}`)
      const ids = 'getent passwd kyc-tokend; getent group kyc-token kyc-tokend'
      const before = await sh(ids)
      await sh('systemctl stop stand-in; dpkg --purge kyc-tokend')
      const left = readdirSync(installation.machine.written, { recursive: true, withFileTypes: true })
        // A file of this host's that the machine has removed is a device there.
        .filter((entry) => entry.name.includes('kyc-token') && !entry.isCharacterDevice())
        .map((entry) => path.join(path.relative(installation.machine.written, entry.parentPath), entry.name))
        .filter((file) => !file.startsWith('root/') && !file.startsWith('var/cache/man/'))
      expect(left).toEqual([])
      expect(await sh("find /run -name '*kyc-token*'")).toBe('')
      expect(await sh(ids)).toBe(before)
      expect(await sh(`readlink ${link}`)).toBe('/lib/systemd/system/kyc-tokend.service\n')
      expect(await sh("systemctl list-units --all --no-legend 'kyc-tokend*'")).toBe('')
    },
  )

  async function overHttp(as: string): Promise<string> {
    const script = `
      const place = { socketPath: '/run/kyc-tokend/http.sock', path: '/v1/token' }
      const headers = { accept: 'text/plain' }
      require('node:http').get({ ...place, headers }, (answer) => answer.pipe(process.stdout))`
    return sh(`/usr/lib/kyc-tokend/node -e "${script}"`, { as })
  }

  /** The stand-in may log a request a moment after it was answered. */
  async function expectRequests(count: number): Promise<void> {
    await expectUntil(`${count} requests`, async () => (await requests()) >= count)
    expect(await requests()).toBe(count)
  }
})
