import { expect, it } from 'vitest'
import { config, describeInstallation } from '../support/installation.ts'
import { expectUntil } from '../support/until.ts'

// Reasons that keep a daemon from starting, decisions of its administrator, and what an upgrade does with both.

describeInstallation('the unit of the daemon', { versions: ['9.0.0', '9.0.1'] }, (installation) => {
  const { install, configure, dropIn, show, fullToken, attempt, sh } = installation

  it('starts without a directory of token files, and lacks only its file', async () => {
    await installation.startStandIn()
    const tokenFiles = [{ path: '/srv/gone/token' }, ...config.tokenFiles]
    await configure({ ...config, tokenFiles })
    await dropIn('token-files', '[Service]\nReadWritePaths=-/srv/gone')
    await sh('systemctl enable --now kyc-tokend')
    expect(await fullToken('member')).toBe(await sh('cat /run/kyc-tokend/token'))
    const { files } = JSON.parse(await sh('kyc-tokend status --json')) as { files: { ok: boolean }[] }
    expect(files.map(({ ok }) => ok)).toEqual([false, true])
    await dropIn('token-files', undefined)
    await configure(config)
  })

  it.each([
    ['a directory that its drop-in needs', 'ReadWritePaths=/srv/gone', 'mkdir /srv/gone', 'NAMESPACE'],
    ['a credential', 'LoadCredential=api-key:/root/gone', 'echo key >/root/gone', 'CREDENTIALS'],
  ])(
    'is tried once in 3 s while %s is missing, and starts when it is there',
    async (_, line, remedy, cause) => {
      await dropIn('gone', `[Service]\n${line}`)
      await sh('systemctl stop kyc-tokend.service; journalctl --rotate --vacuum-time=1s')
      await sh('systemctl start --no-block kyc-tokend.service')
      const failed = `journalctl --sync; journalctl -u kyc-tokend.service -o short-unix -g 'process exited.*${cause}'`
      const [first, second] = await expectUntil('two starts', async () => {
        const times = (await attempt(failed)).stdout.split('\n').map(Number.parseFloat)
        return times.length > 2 && times
      })
      expect(second! - first!).toBeGreaterThan(2.9)
      expect(await show('ActiveState', 'kyc-tokend.socket')).toBe('active')
      await sh(remedy)
      expect(await sh('kyc-tokend token --wait 60s', { as: 'member' })).toMatch(/^ey/)
      await dropIn('gone', undefined)
      await sh('rm -rf /srv/gone /root/gone; systemctl restart kyc-tokend')
    },
    120_000,
  )

  it('lives with any WatchdogSec=, and is restarted soon after it hangs', async () => {
    await dropIn('watchdog', '[Service]\nWatchdogSec=2s')
    await sh('systemctl restart kyc-tokend')
    const pid = await show('MainPID')
    const signOfLifeUs = async (): Promise<number> => Number(await show('WatchdogTimestampMonotonic'))
    const twiceLaterUs = (await signOfLifeUs()) + 4_000_000
    await expectUntil('later signs of life', async () => (await signOfLifeUs()) > twiceLaterUs)
    expect(await show('MainPID')).toBe(pid)
    await sh(`kill -STOP ${pid}`)
    await installation.restarted(pid)
    await installation.expectJournal('kyc-tokend', 'Watchdog timeout')
    expect(await fullToken('member')).toMatch(/^ey/)
    await dropIn('watchdog', undefined)
    await sh('systemctl restart kyc-tokend')
    expect(await show('WatchdogUSec')).toBe('45s')
  })

  it('leaves HTTP out when its socket is masked', async () => {
    await sh('test -e /run/kyc-tokend/http.sock; systemctl stop kyc-tokend-http.socket')
    await sh('systemctl mask kyc-tokend-http.socket; systemctl restart kyc-tokend')
    expect(await fullToken('member')).toMatch(/^ey/)
    expect((await attempt('test -e /run/kyc-tokend/http.sock')).status).toBe(1)
  })

  it('offers metrics over TCP where their socket is enabled, and nothing else there', async () => {
    const ask = async (path: string, port = 9477): Promise<string> =>
      (await attempt(`curl -s -w ' %{http_code}' http://127.0.0.1:${port}/${path}`, 'nobody')).stdout
    expect((await attempt('systemctl is-enabled kyc-tokend-metrics.socket')).stdout).toBe('disabled\n')
    expect(await ask('metrics')).toBe(' 000')
    await installation.follow('metrics-socket')
    expect(await ask('metrics')).toMatch(/^# HELP kyc_tokend_[^]* 200$/)
    expect(await ask('readyz')).toMatch(/ 200$/)
    expect(await ask('v1/token')).toMatch(/ 404$/)
    const address = '[Socket]\nListenStream=\nListenStream=127.0.0.1:9479'
    await dropIn('address', address, 'kyc-tokend-metrics.socket')
    await installation.follow('metrics-address')
    expect(await ask('healthz', 9479)).toMatch(/ 200$/)
    expect(await ask('healthz')).toBe(' 000')
    await dropIn('address', undefined, 'kyc-tokend-metrics.socket')
    await sh('systemctl disable --now kyc-tokend-metrics.socket')
  })

  it('restarts at an upgrade, which keeps the decisions of the administrator and warns of lines without -', async () => {
    await sh('systemctl disable --now kyc-tokend-alert.path; mkdir /srv/there')
    await dropIn('token-files', '[Service]\nReadWritePaths=/srv/there -/srv/gone')
    await sh('systemctl restart kyc-tokend')
    const before = await show('MainPID')
    const said = await sh(install('9.0.1'))
    expect(said).toContain('ReadWritePaths=/srv/there,')
    expect(said).toContain('ReadWritePaths=-/srv/there')
    expect(said).not.toContain('gone')
    await installation.restarted(before)
    expect(await sh("dpkg-query --show --showformat '${Version}' kyc-tokend")).toBe('9.0.1')
    expect(await fullToken('member')).toMatch(/^ey/)
    const units = 'kyc-tokend-alert.path kyc-tokend-http.socket kyc-tokend.service'
    expect((await attempt(`systemctl is-enabled ${units}`)).stdout).toBe('disabled\nmasked\nenabled\n')
    expect((await attempt('test -e /run/kyc-tokend/http.sock')).status).toBe(1)
  })

  it('stays disabled and stopped through an upgrade', async () => {
    await sh("systemctl disable kyc-tokend; systemctl stop 'kyc-tokend*'")
    await sh(install('9.0.0').replace('dpkg', 'dpkg --force-downgrade'))
    expect((await attempt("systemctl is-active 'kyc-tokend*'")).stdout).toBe('')
  })
})
