// The token as a credential that systemd reads from the daemon's socket when it starts a unit.
import { expect, it } from 'vitest'
import { block, manualText } from '../manual/manual.ts'
import { config, describeInstallation } from '../support/installation.ts'
import { expectUntil } from '../support/until.ts'

describeInstallation('the token as a credential of units', {}, (installation) => {
  const { attempt, configure, expectJournal, scenario, show, sh } = installation
  /** Starts a unit that prints its credential. */
  const start = (unit: string, { id = 'kyc-token', account = '' } = {}): Promise<Finished> =>
    attempt(
      `systemd-run --quiet --wait --pipe --unit=${unit} -p DynamicUser=yes -p Type=exec \\
        -p Requires=kyc-tokend-credential${account && `@${account}`}.socket \\
        -p After=kyc-tokend-credential${account && `@${account}`}.socket \\
        -p LoadCredential=${id}:/run/kyc-tokend${account && `/accounts/${account}`}/credential.sock \\
        sh -c 'cat "$CREDENTIALS_DIRECTORY"/*'`,
    )
  type Finished = Awaited<ReturnType<typeof attempt>>
  const waiting = (unit: string): Promise<unknown> =>
    expectUntil(`${unit} to wait`, async () => (await show('ActiveState', unit)) === 'activating')
  /** The daemon as before its first token. */
  const forget = (): Promise<string> =>
    sh('systemctl stop kyc-tokend; cd /run/kyc-tokend; rm -f token *.json /var/lib/kyc-tokend/*.json')
  const UNITS = 300
  const refusal = 'Failed to set up credentials: Protocol error'

  it('is there for a unit that is started before the daemon, and before the service gives one', async () => {
    await sh('useradd member; usermod -aG kyc-token member')
    await installation.startStandIn()
    await configure(config)
    await sh('systemctl enable kyc-tokend')
    await scenario('outage')
    await installation.follow('credential-socket')
    await forget()
    const one = start('one.service')
    const other = start('other.service')
    await waiting('one.service')
    await scenario('ok')
    const { stdout: token } = await one
    expect(await sh('cat /run/kyc-tokend/token')).toBe(token)
    expect(await other).toMatchObject({ status: 0, stdout: token })
    const taken = await expectJournal('kyc-tokend', /transport=credential client=other\.service/)
    expect(taken).toMatch(/event=token-taken uid=0 pid=\d+ transport=credential client=one\.service count=1/)
    expect(taken).not.toContain('credential-failed')
  })

  it('comes in the format that its name chooses', async () => {
    const token = await sh('cat /run/kyc-tokend/token')
    const formats = {
      'kyc-token.header': `Authorization: Bearer ${token}\n`,
      'kyc-token.env': `KYC_ACCESS_TOKEN=${token}\n`,
    }
    for (const [id, text] of Object.entries(formats))
      expect((await start('formats.service', { id })).stdout).toBe(text)
    const { stdout } = await start('formats.service', { id: 'kyc-token.json' })
    expect(JSON.parse(stdout)).toMatchObject({ accessToken: token, generation: expect.any(Number) })
  })

  it('starts the unit of the manual, whose program reads it from a file', async () => {
    const program = '#!/bin/sh\necho "$1 has $(cat "$2")"; exec sleep infinity\n'
    await sh('cat >/usr/local/bin/billing; chmod 755 /usr/local/bin/billing', { input: program })
    await sh('cat >/etc/systemd/system/billing.service', { input: `${block('credential-unit').code}\n` })
    await sh('systemctl daemon-reload; systemctl enable --now billing')
    await expectJournal('billing', `--token-file has ${await sh('cat /run/kyc-tokend/token')}`)
    expect(await installation.complaintsAbout('billing.service')).toBe('')
    await sh(
      'systemctl disable --now billing; rm /etc/systemd/system/billing.service; systemctl daemon-reload',
    )
  })

  it('is for root alone', async () => {
    expect(await installation.modesOf('/run/kyc-tokend/credential.sock')).toEqual(['600 root:kyc-token'])
    const connect = `require('net').connect('/run/kyc-tokend/credential.sock')
      .on('error', ({ code }) => console.log(code))`
    expect(await sh(`/usr/lib/kyc-tokend/node -e "${connect}"`, { as: 'member' })).toBe('EACCES\n')
  })

  it('is never an empty one where the daemon is stopped while a unit waits', async () => {
    await scenario('outage')
    await forget()
    const failures = async (): Promise<number> =>
      (await installation.journal('kyc-tokend')).split('event=fetch-failed').length
    const before = await failures()
    const unit = start('stopped.service')
    await expectUntil('the daemon to ask for it', async () => (await failures()) > before)
    const stoppedAtMs = Date.now()
    await sh('systemctl restart kyc-tokend')
    expect(await unit).toMatchObject({ stdout: '' })
    expect(Date.now() - stoppedAtMs).toBeLessThan(30_000)
    await expectJournal('stopped.service', refusal)
    await expectJournal('kyc-tokend', /event=credential-failed unit=stopped\.service .*reason=server-error/)
  })

  it('is never an empty one where many units wait at a stop, and their waiting costs little', async () => {
    await scenario('outage')
    await forget()
    await sh('systemctl start kyc-tokend')
    const pid = await show('MainPID')
    await sh(`
      for n in $(seq ${UNITS}); do
        systemd-run --quiet --no-block --unit=many-$n -p LoadCredential=kyc-token:/run/kyc-tokend/credential.sock \
          sh -c 'echo started >/run/many-$n'
      done`)
    const connected = 'ss -xH state connected src /run/kyc-tokend/credential.sock | wc -l'
    await expectUntil('all of them to wait', async () => Number(await sh(connected)) >= UNITS)
    const status = await sh(`cat /proc/${pid}/status`)
    await sh('systemctl stop kyc-tokend.service')
    expect(Number(/VmHWM:\s+(\d+) kB/.exec(status)?.[1])).toBeLessThan(120_000)
    await expectUntil(
      'their end',
      async () => (await sh('systemctl list-units -q "many-*" --state=activating')) === '',
    )
    expect(await sh('ls /run | grep many- || true')).toBe('')
    const failed = await sh("systemctl list-units -q --failed 'many-*' | wc -l")
    expect(Number(failed)).toBe(UNITS)
    await sh('systemctl reset-failed; systemctl start kyc-tokend')
  })

  it('is known from blanks by the line of the manual', async () => {
    const [, line] = /`(ExecStartPre=.*kyc-token)`/.exec(manualText())!
    const loaded = (credential: string): Promise<Finished> =>
      attempt(`systemd-run --quiet --wait -p '${line}' -p ${credential} true`)
    await sh('systemctl start kyc-tokend')
    await scenario('ok')
    await sh('kyc-tokend refresh')
    const statuses = await Promise.all(
      ['LoadCredential=kyc-token:/run/kyc-tokend/credential.sock', "SetCredential='kyc-token:   '"].map(
        async (credential) => (await loaded(credential)).status,
      ),
    )
    expect(statuses).toEqual([0, 1])
  })

  it('is loaded by a unit whose name and the credential’s have 83 bytes together', async () => {
    await scenario('ok')
    await sh('systemctl restart kyc-tokend')
    const name = (bytes: number): string => `${'x'.repeat(bytes - 'kyc-token.service'.length)}.service`
    expect((await start(name(83))).stdout).toBe(await sh('cat /run/kyc-tokend/token'))
    await expectJournal('kyc-tokend', `client=${name(83)}`)
    expect((await start(name(84))).status).not.toBe(0)
  })

  it('fails a unit at once where the account is refused, and the journal says what to do', async () => {
    await scenario('account-inactive')
    await forget()
    await sh('systemctl start kyc-tokend')
    const { status, stdout } = await start('billing.service')
    expect({ status, stdout }).toEqual({ status: 243, stdout: '' })
    await expectJournal('billing.service', refusal)
    await expectJournal(
      'kyc-tokend',
      /event=credential-failed unit=billing\.service pid=\d+ reason=account-inactive .*start billing/,
    )
  })

  it('fails a unit at once where the configuration is faulty', async () => {
    await configure({ ...config, baseUrl: 'http://example.com' })
    await sh('systemctl stop kyc-tokend')
    expect((await start('faulty.service')).status).toBe(243)
    await expectJournal('kyc-tokend', /event=credential-failed unit=faulty\.service .*reason=misconfigured/)
    await configure(config)
    await scenario('ok')
    await sh('systemctl restart kyc-tokend')
  })

  it('is there for an account, too', async () => {
    await configure(config, '/etc/kyc-tokend/accounts/eu.json')
    expect(await start('of-eu.service', { account: 'eu' })).toMatchObject({ status: 0 })
    const token = await sh('cat /run/kyc-tokend/accounts/eu/token')
    expect((await start('of-eu.service', { account: 'eu' })).stdout).toBe(token)
  })
})
