// Commands of an operator where systemd runs the daemon: setup, also of an account, check and token.
import { expect, it } from 'vitest'
import { config, describeInstallation } from '../support/installation.ts'
import { expectUntil } from '../support/until.ts'

describeInstallation('The commands of an operator under systemd', {}, (installation) => {
  const { configure, attempt, startStandIn, show, sh } = installation
  const all = 'kyc-tokend.service kyc-tokend.socket kyc-tokend-http.socket'
  const words = '--base-url http://127.0.0.1:8099 --api-key-file key --api-secret-file secret'

  it('setup gives an account beside the default one a token', async () => {
    await startStandIn()
    await sh('echo sandbox-key >key; echo sandbox-secret >secret')
    const first = await sh(`kyc-tokend setup ${words}`)
    expect(first).toContain('kyc-tokend runs and holds a token')
    expect(first).not.toContain('is closed')
    // The package had enabled nothing.
    const units = `${all} kyc-tokend-alert.path`
    expect(await sh(`systemctl is-enabled ${units}`)).toBe('enabled\n'.repeat(4))
    expect(await sh(`systemctl is-active ${units}`)).toBe('active\n'.repeat(4))
    const account = await sh(`KYC_TOKEND_ACCOUNT=eu kyc-tokend setup ${words}`)
    expect(account).toContain('kyc-tokend@eu runs and holds a token')
    const files = ['/etc/kyc-tokend/accounts/eu.json', '/etc/kyc-tokend/accounts/eu.api-key']
    expect(await installation.modesOf(...files)).toEqual(['640 root:kyc-tokend', '640 root:kyc-tokend'])
    expect(await sh('kyc-tokend status --account eu')).toMatch(/^state +ready/)
    expect(await sh('kyc-tokend check --account eu')).toContain(`${files[0]} is valid`)
  })

  it('setup leaves a pair that works where the service refuses the new one or is away, unless --unverified', async () => {
    const seen = (): Promise<string> => sh('cd /etc/kyc-tokend; stat -c "%n %a %U:%G" *; cat api-* *.json')
    const before = await seen()
    await sh('echo another-secret >wrong')
    const refused = words.replace('file secret', 'file wrong')
    for (const [status, given] of Object.entries({ 77: refused, 75: words.replace('8099', '8098') })) {
      const said = await attempt(`kyc-tokend setup --force ${given}`)
      expect(said.stdout).toMatch(/\nNothing was changed: .* --unverified .*\n$/)
      expect(said.status).toBe(Number(status))
    }
    expect(await seen()).toBe(before)
    const pid = await show('MainPID')
    const again = await sh(`kyc-tokend setup --force ${words} --expires-at 2099-03-01`)
    expect(again).toContain('kyc-tokend runs and holds a token')
    const unverified = await attempt(`kyc-tokend setup --force --unverified ${refused}`)
    expect(unverified.stderr).toMatch(/^kyc-tokend does not use the new files: .*\n$/)
    expect(unverified.status).toBe(77)
    await sh(`kyc-tokend setup --force ${words}`)
    expect(await show('MainPID')).toBe(pid)
  })

  it('check asks as a member of the clients’ group, and tells a user without rights to use sudo', async () => {
    await sh('chmod 0600 /run/kyc-tokend/ipc.sock')
    expect((await attempt('kyc-tokend check')).stdout).toMatch(
      /^FAULT +sockets +a member of kyc-token gets no answer at \/run\/kyc-tokend\/ipc\.sock \(EACCES\)/m,
    )
    await sh('chmod 0660 /run/kyc-tokend/ipc.sock')
    const { status, stdout } = await attempt('kyc-tokend check', 'nobody')
    expect(stdout).toMatch(/^FAULT +configuration .* may not be read by .*: .*use sudo/m)
    expect(status).toBe(78)
  })

  it('check, and a command without a daemon, say in the words of systemd why the service does not run', async () => {
    await configure({ ...config, baseUrl: 'http://example.com' })
    await attempt("systemctl restart kyc-tokend || systemctl stop 'kyc-tokend*.socket'")
    const { status, stdout } = await attempt('kyc-tokend check')
    expect(stdout).toMatch(/^FAULT +unit +.* Active: failed .*`sudo journalctl -u kyc-tokend/m)
    expect(status).toBe(78)
    const { stderr } = await attempt('kyc-tokend token')
    expect(stderr).toMatch(/^No kyc-tokend .* Active: failed .*\. More: `sudo kyc-tokend check`\.$/m)
  })

  it('setup corrects a faulty unit at once, also while a client polls its socket', async () => {
    await configure({ ...config, baseUrl: 'http://example.com' })
    await sh(`systemd-run --unit=poller sh -c 'while :; do kyc-tokend token --wait 0s; done'
      systemctl restart --no-block kyc-tokend`)
    await installation.expectJournal('kyc-tokend', 'baseUrl')
    await expectUntil('a start for the client', async () => (await show('ActiveState')) === 'activating')
    // Within the 15 s for which it waits.
    expect(await sh(`kyc-tokend setup --force ${words}`)).toMatch(/^Started kyc-tokend\n[^]*holds a token/m)
    await sh('systemctl stop poller')
  })

  it('check names the commands that work if units are masked, and token names check', async () => {
    for (const masked of ['kyc-tokend.socket', all]) {
      await sh(`systemctl mask --quiet --now ${masked}`)
      const { status, stderr } = await attempt('kyc-tokend token --wait 0s')
      expect(status).toBe(69)
      expect(stderr).toContain('`sudo kyc-tokend check`')
      const { stdout } = await attempt('kyc-tokend check')
      // The first of several starts nothing yet, because the others are masked still.
      for (const [, command = ''] of stdout.matchAll(/is masked[^`]*`([^`]*)`/g))
        await attempt(command.replaceAll('sudo ', ''))
      expect(await sh('kyc-tokend token --wait 10s')).toMatch(/^ey/)
    }
    await sh('systemctl restart kyc-tokend')
  })

  it('setup says so when systemd does not answer, and writes nothing', async () => {
    const leader = Number(installation.machine().path('/').split('/')[2])
    process.kill(leader, 'SIGSTOP')
    try {
      const { status, stderr } = await attempt(`kyc-tokend setup --account us ${words}`)
      expect(stderr).toMatch(/systemd does not say whether kyc-tokend@us.service .*: run this again/)
      expect(status).toBe(69)
    } finally {
      process.kill(leader, 'SIGCONT')
    }
    expect((await attempt('ls /etc/kyc-tokend/accounts/us.json')).status).toBe(2)
  })
})
