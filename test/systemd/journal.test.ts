// The log as entries of a real journal, from within the unit's sandbox, while that journal comes and goes.
import { expect, it } from 'vitest'
import { CONFIG, config, describeInstallation } from '../support/installation.ts'
import { expectUntil } from '../support/until.ts'

type Entry = Readonly<Record<string, unknown>>
const STARTS = 50

describeInstallation('the log in the journal', {}, (installation) => {
  const { attempt, configure, follow, scenario, sh } = installation
  const entriesIn = (lines: string): Entry[] =>
    lines
      .split('\n')
      .filter((line) => line !== '')
      .map((line) => JSON.parse(line) as Entry)
  /** The daemon's entries with this event. */
  const entries = async (event: string, unit = 'kyc-tokend'): Promise<Entry[]> =>
    entriesIn(await sh(`journalctl --sync; journalctl -u ${unit} KYC_EVENT=${event} -o json`))
  /** Resolves with them once there are that many. */
  const expectEntries = (event: string, count: number): Promise<Entry[]> =>
    expectUntil(`${count} of ${event}`, async () => {
      const found = await entries(event)
      return found.length >= count && found
    })
  const answer = (name: string): Promise<Entry[]> => follow(`audit-${name}`).then(entriesIn)

  it('has a record as an entry with its fields, and whose it is', async () => {
    await sh('useradd member; usermod -aG kyc-token member')
    await installation.startStandIn()
    await configure(config)
    await sh('systemctl enable --now kyc-tokend')
    const token = await installation.fullToken('member')
    const [started] = await expectEntries('started', 1)
    expect(started).toMatchObject({
      MESSAGE: expect.stringMatching(/^kyc-tokend has started event=started version=/),
      PRIORITY: '6',
      SYSLOG_IDENTIFIER: 'kyc-tokend',
      _TRANSPORT: 'journal',
      _SYSTEMD_UNIT: 'kyc-tokend.service',
      KYC_CONFIG_FILE: CONFIG,
      KYC_BASE_URL: config.baseUrl,
    })
    expect(await sh('journalctl -o json')).not.toContain(token)
    expect(await installation.journal('kyc-tokend')).not.toContain('<6>')
  })

  it('answers the questions of an audit', async () => {
    await sh('kyc-tokend reject', { as: 'member' })
    await scenario('account-inactive')
    await attempt('kyc-tokend refresh')
    await scenario('ok')
    await sh('kyc-tokend refresh; systemctl reload kyc-tokend')
    await expectEntries('reloaded', 1)
    const uid = (await sh('id -u member')).trim()
    const taken = { KYC_UID: uid, KYC_TRANSPORT: 'ipc', KYC_CLIENT: expect.any(String), KYC_COUNT: '1' }
    expect(await answer('taken')).toMatchObject([taken])
    expect(await answer('reported')).toMatchObject([{ KYC_UID: uid, KYC_VERDICT: expect.any(String) }])
    const obtained = await answer('obtained')
    expect(obtained.length).toBeGreaterThan(1)
    for (const entry of obtained)
      expect(entry).toMatchObject({
        KYC_FINGERPRINT: expect.stringMatching(/^[\da-f]{16}$/),
        KYC_EXPIRES_AT: expect.stringMatching(/^\d{4}-/),
        KYC_CAUSE: expect.any(String),
      })
    expect(await answer('alerts')).toMatchObject([
      { KYC_EVENT: 'alert', KYC_REASON: 'account-inactive' },
      { KYC_EVENT: 'alert-resolved', KYC_BY: 'token' },
    ])
    expect((await answer('changes')).map((entry) => entry['KYC_EVENT'])).toEqual(['started', 'reloaded'])
  })

  it('gets what was logged while the journal was restarted, stopped, or without its socket', async () => {
    const journal = 'systemd-journald.service systemd-journald.socket systemd-journald-dev-log.socket'
    const outages = [
      ['systemctl restart systemd-journald', 'true'],
      [`systemctl stop ${journal} systemd-journald-audit.socket`, `systemctl start ${journal}`],
      ['mv /run/systemd/journal/socket /run/systemd/journal/gone', 'mv /run/systemd/journal/gone /run/systemd/journal/socket'],
    ] as const // prettier-ignore
    const countOf = (lines: string): number => lines.split('event=reloaded').length - 1
    for (const [begin, end] of outages) {
      const before = countOf(await installation.journal('kyc-tokend'))
      await sh(begin)
      const pid = await installation.show('MainPID')
      for (let count = 0; count < 5; count += 1)
        await sh('kyc-tokend token >/dev/null; systemctl reload kyc-tokend')
      await sh(end)
      await expectUntil(
        `the reloads after ${begin}`,
        async () => countOf(await installation.journal('kyc-tokend')) >= before + 5,
      )
      expect(await installation.show('MainPID')).toBe(pid)
    }
    expect(await entries('log-records-lost')).toEqual([])
  })

  it(`has the reason of each of ${STARTS} starts with a faulty configuration`, async () => {
    // Without sockets: with them, the daemon has 2 s more for the journal.
    await configure({ ...config, baseUrl: 'http://example.com' }, '/etc/kyc-tokend/faulty.json')
    await sh(`
      for n in $(seq ${STARTS}); do
        systemd-run --quiet --wait --unit=faulty-$n -p User=kyc-tokend -p RuntimeDirectory=faulty-$n \\
          /usr/bin/kyc-tokend run --config /etc/kyc-tokend/faulty.json || true
      done
      journalctl --sync`)
    const found = await sh(`
      for n in $(seq ${STARTS}); do
        journalctl -u faulty-$n -o cat | grep -q 'baseUrl' && echo $n
      done`)
    expect(found.trim().split('\n')).toHaveLength(STARTS)
  })
})
