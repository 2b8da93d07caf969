import { execFileSync } from 'node:child_process'
import { copyFileSync } from 'node:fs'
import path from 'node:path'
import { expect, it } from 'vitest'
import { config, CONFIG, describeInstallation } from '../support/installation.ts'
import { expectUntil } from '../support/until.ts'

// One machine for the life of an installation, from dpkg -i to dpkg --purge: the tests build on each other.

const UNITS = 'kyc-tokend.service kyc-tokend.socket kyc-tokend-http.socket kyc-tokend-alert.path'
/** Of CONTRACT.md, with owner and mode. */
const PLACES = {
  '/run/kyc-tokend': '751 root:root',
  '/run/kyc-tokend/ipc.sock': '660 root:kyc-token',
  '/run/kyc-tokend/http.sock': '660 root:kyc-token',
  '/run/kyc-tokend/files': '751 kyc-tokend:kyc-tokend',
  '/run/kyc-tokend/files/token': '640 kyc-tokend:kyc-token',
  '/var/lib/kyc-tokend': '700 kyc-tokend:kyc-tokend',
  [CONFIG]: '640 root:kyc-tokend',
}
const KILL = 'systemctl kill --signal=KILL --kill-whom=main kyc-tokend'

describeInstallation('kyc-tokend as a service', { isInstalled: false }, (installation) => {
  const { install, configure, scenario, expectRequests, fullToken, expectJournal, show } = installation
  const { sh, attempt, modesOf } = installation

  /** The token as a member of the clients' group gets it, at each of the places. */
  async function served(): Promise<string> {
    const token = await fullToken('member')
    const read = async (): Promise<string> => (await attempt('cat /run/kyc-tokend/token', 'member')).stdout
    await expectUntil('the file', async () => (await read()) === token)
    const overHttp = 'curl --silent --unix-socket /run/kyc-tokend/http.sock http://localhost/v1/token'
    expect(await sh(overHttp, { as: 'member' })).toContain(`"accessToken":"${token}"`)
    return token
  }

  it('is installed, says what is next, and waits for a configuration', async () => {
    expect(await sh(install('9.0.0'))).toContain('Next:\n  sudo kyc-tokend setup\n')
    expect((await attempt(`systemctl is-active ${UNITS}`)).stdout).not.toMatch(/^active/m)
    // Installed once more, it has not become the administrator's will.
    await sh(install('9.0.0'))
    expect((await attempt(`systemctl is-enabled ${UNITS}`)).stdout).toBe('disabled\n'.repeat(4))
    expect(await attempt('test -e /run/kyc-tokend')).toMatchObject({ status: 1 })
    await sh('useradd member; usermod -aG kyc-token member; useradd stranger')
  })

  it('has units that systemd has nothing to say about, and a tight sandbox', async () => {
    const all = await sh("cd /usr/lib/systemd/system; echo kyc-token* | sed 's/@/@eu/g'")
    expect(await attempt(`systemd-analyze verify ${all}`)).toMatchObject({ stdout: '', stderr: '' })
    const limits = { 'kyc-tokend': 1.2, 'kyc-tokend@eu': 1.2, 'kyc-tokend-alert': 1.5 }
    for (const [unit, limit] of Object.entries(limits)) {
      const output = await sh(`systemd-analyze security --offline=yes ${unit}.service`)
      expect(Number(/exposure level.*: ([\d.]+)/.exec(output)?.[1]), unit).toBeLessThanOrEqual(limit)
    }
    expect(await show('RestartPreventExitStatus')).toBe('64 69 78')
    // Many failures must not end the sockets.
    expect(await show('StartLimitIntervalUSec')).toBe('0')
  })

  it('starts with a configuration, says how it is, and gives the token to members of the clients’ group', async () => {
    await installation.startStandIn()
    await configure(config)
    await sh('systemctl enable --now kyc-tokend')
    expect(await show('StatusText')).toMatch(/^ready, token good until /)
    const token = await served()
    expect(token).toMatch(/^ey/)
    await expectRequests(1)
    expect(await modesOf(...Object.keys(PLACES))).toEqual(Object.values(PLACES))
    await expectJournal('kyc-tokend', /^kyc-tokend has started event=started version=/m)
    expect(JSON.parse(await sh('journalctl -u kyc-tokend -g event=started -o json'))).toMatchObject({
      MESSAGE: expect.stringContaining(`configFile=${CONFIG}`) as string,
      PRIORITY: '6',
      SYSLOG_IDENTIFIER: 'kyc-tokend',
    })
    expect(await sh('journalctl -o json')).not.toContain(token)
  })

  it('gives nothing else to them, and nothing to anybody else', async () => {
    const denied = {
      [CONFIG]: 'member',
      '/var/lib/kyc-tokend/.': 'member',
      '/run/kyc-tokend/token': 'stranger',
    }
    for (const [file, user] of Object.entries(denied))
      expect((await attempt(`cat ${file}`, user)).stderr).toContain('Permission denied')
    for (const command of ['token', 'status'])
      expect(await attempt(`kyc-tokend ${command}`, 'stranger')).toMatchObject({ status: 77, stdout: '' })
  })

  it.each([
    ['a restart', 'systemctl restart kyc-tokend'],
    ['a stop and a start of all', `systemctl stop ${UNITS}; systemctl start ${UNITS}`],
    ['a new start of systemd', 'systemctl daemon-reexec; systemctl restart kyc-tokend'],
    ['a removal of the token file', 'rm /run/kyc-tokend/files/token; systemctl restart kyc-tokend'],
    // For a client that asks meanwhile.
    ['a kill', KILL],
  ])('serves the same token after %s, without a request, with the same owners and modes', async (_, act) => {
    const token = await fullToken('member')
    await sh(act)
    expect(await served()).toBe(token)
    expect(await modesOf(...Object.keys(PLACES))).toEqual(Object.values(PLACES))
    await expectRequests(1)
  })

  it('serves again where somebody removed its directory, after a start', async () => {
    await sh(`systemctl stop ${UNITS}; rm -rf /run/kyc-tokend; systemctl start kyc-tokend`)
    await served()
    expect(await modesOf(...Object.keys(PLACES))).toEqual(Object.values(PLACES))
    // The token was in it.
    await expectRequests(2)
  })

  it('reloads a good configuration, and keeps the running one against a faulty one', async () => {
    await sh('systemctl reload kyc-tokend')
    await expectJournal('kyc-tokend', 'event=reloaded')
    await configure({ ...config, refresh: { maxAge: 15 } })
    expect((await attempt('systemctl reload kyc-tokend')).status).not.toBe(0)
    await expectJournal('kyc-tokend', 'refresh.maxAge')
    await configure(config)
    await sh('systemctl reload kyc-tokend')
    await served()
    await expectRequests(2)
  })

  it('alerts an operator when the account is not active, and asks no more', async () => {
    await sh(`cat >/etc/kyc-tokend/alert-command; chmod 755 /etc/kyc-tokend/alert-command`, {
      input: '#!/bin/sh\necho "called: $#:$1: $(cat)"\nid -Gn\ncat /run/kyc-tokend/token || true\n',
    })
    await scenario('account-inactive')
    expect((await attempt('kyc-tokend refresh')).status).toBe(77)
    await expectJournal('kyc-tokend -p alert', 'account-inactive')
    const called = await expectJournal('kyc-tokend-alert', '/run/kyc-tokend/token: Permission denied')
    expect(called).toMatch(/called: 1:raised: .*"reason": ?"account-inactive"/)
    expect(called).not.toContain('kyc-token ')
    // Where the link leads.
    expect(await modesOf('-L /run/kyc-tokend/alert.json')).toEqual(['644 kyc-tokend:kyc-token'])

    await sh(KILL)
    await expectUntil('the daemon after its crash', async () => (await show('ActiveState')) === 'active')
    expect((await attempt('kyc-tokend status')).status).toBe(77)
    await expectRequests(3)

    await scenario('ok')
    await sh('kyc-tokend refresh')
    await expectJournal('kyc-tokend-alert', 'called: 1:resolved: {')
    await expectRequests(4)
    expect(await sh('systemctl is-active kyc-tokend-alert.path')).toBe('active\n')
  })

  it('answers the questions of an audit in the journal', async () => {
    await sh('kyc-tokend reject', { as: 'member' })
    const uid = (await sh('id -u member')).trim()
    await expectJournal('kyc-tokend', 'event=token-rejected')
    const taken = await installation.follow('audit-taken')
    expect(taken).toMatch(new RegExp(` uid=${uid} transport=ipc clients=.* count=1$`, 'm'))
    expect(taken).toMatch(new RegExp(`event=token-rejected .*uid=${uid} transport=ipc `))
    const records = await installation.journal('kyc-tokend')
    expect(records).toMatch(/event=token-obtained .*fingerprint=[\da-f]{16} .*expiresAt=\d{4}-/)
    expect(records).toMatch(/event=alert .*reason=account-inactive[^]*event=alert-resolved/)
  })

  it('ends over a faulty configuration while a client keeps trying, and starts when it is corrected', async () => {
    await configure({ ...config, baseUrl: 'http://example.com' })
    expect((await attempt('systemctl restart kyc-tokend')).status).not.toBe(0)
    expect(await show('ExecMainStatus')).toBe('78')
    const starts = async (): Promise<number> =>
      (await installation.journal('kyc-tokend')).split('\nStarting ').length
    const [startsBefore, begunMs] = [await starts(), Date.now()]
    while ((await starts()) < startsBefore + 2) {
      const client = await attempt('kyc-tokend token --wait 1s', 'member')
      expect(client).toMatchObject({ status: 69, stdout: '' })
    }
    // Each start takes 2 s.
    expect(Date.now() - begunMs).toBeGreaterThan(2_000)
    expect(await sh('systemctl is-active kyc-tokend.socket kyc-tokend-http.socket')).toBe('active\nactive\n')
    await expectJournal('kyc-tokend', 'baseUrl')
    await configure(config)
    await sh('systemctl restart kyc-tokend')
    await served()
  })

  it('is really forbidden what its sandbox forbids', async () => {
    const probe = '/usr/lib/kyc-tokend/probe.cjs'
    copyFileSync(path.join(import.meta.dirname, 'probe.cjs'), installation.machine().path(probe))
    // The same unit with another program, and without what makes it the daemon.
    await sh(`
      sed -e '/^ExecStart=/s/cli.cjs run/probe.cjs/' -e 's/^Type=.*/Type=oneshot/' -e '/^Restart/d' \\
        -e '/^WatchdogSec/d' -e '/^Sockets/d' -e '/^Requires/d' -e '/^ExecReload/d' \\
        /usr/lib/systemd/system/kyc-tokend.service >/run/systemd/system/probe.service
      systemctl daemon-reload
      systemctl start probe; rm ${probe}`)
    const found = /^\{.*\}$/m.exec(await expectJournal('probe', '}\n'))
    expect(JSON.parse(found![0])).toEqual({
      'execute /usr/bin/true': 'EACCES',
      'execute in /run/kyc-tokend/files': 'EACCES',
      'execute in /var/lib/kyc-tokend': 'EACCES',
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

  it('is purged without a trace, but user, groups and links of the administrator', async () => {
    await sh('systemctl enable kyc-tokend-metrics.socket')
    const link = '/etc/systemd/system/multi-user.target.wants/token.service'
    await sh(`ln -s /lib/systemd/system/kyc-tokend.service ${link}`)
    const ids = 'getent passwd kyc-tokend; getent group kyc-token kyc-tokend'
    const before = await sh(ids)
    await sh('systemctl stop stand-in; dpkg --purge kyc-tokend')
    // A file of this host's that the machine has removed is a device there.
    const others = ['!', '-type', 'c', '!', '-path', './root/*', '!', '-path', './var/cache/man/*']
    const find = ['.', '-name', '*kyc-token*', ...others]
    expect(execFileSync('find', find, { cwd: installation.machine().written }).toString()).toBe('')
    expect(await sh("find /run -name '*kyc-token*'")).toBe('')
    expect(await sh(ids)).toBe(before)
    expect(await sh(`readlink ${link}`)).toBe('/lib/systemd/system/kyc-tokend.service\n')
    expect(await sh("systemctl list-units --all --no-legend 'kyc-tokend*'")).toBe('')
  })
})
