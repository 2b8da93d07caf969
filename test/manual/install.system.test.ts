// Follows the task pages of the manual, word for word, on a machine with a real systemd.
import { expect, it } from 'vitest'
import { CONFIG, describeInstallation } from '../support/installation.ts'
import { expectUntil } from '../support/until.ts'
import { block, dropIns, manualText } from './manual.ts'

const DROP_INS = '/etc/systemd/system/kyc-tokend.service.d'

const dropInsOf = (file: string): string[] =>
  dropIns().flatMap(({ name, code }) => (name === file ? [code] : []))

describeInstallation('installed as the manual says', {}, (installation) => {
  const { attempt, follow, run, sh } = installation
  const token = (): Promise<string> => sh('kyc-tokend token')

  /** Writes the configuration that there is, with these settings. */
  async function configure(settings: object): Promise<void> {
    const former = JSON.parse(await sh(`cat ${CONFIG}`)) as object
    await installation.configure({ ...former, ...settings })
  }

  it('is set up by one command, and again with --force, which changes nothing', async () => {
    await installation.startStandIn()
    await sh('echo sandbox-key >key.txt; echo sandbox-secret >secret.txt')
    const command = block('setup')
      .code.replace('sudo ', '')
      .replace('https://api.example.com', 'http://127.0.0.1:8099')
    const said = await sh(command)
    for (const line of block('setup-says').code.split('\n'))
      expect(said).toContain(line.replace(/ good for .*/, ''))
    expect(await token()).toMatch(/^ey/)
    const modes = await installation.modesOf(CONFIG, '/etc/kyc-tokend/api-secret')
    expect(modes).toEqual(['640 root:kyc-tokend', '640 root:kyc-tokend'])
    const files = `stat -c '%i %Y %n' /etc/kyc-tokend/*; systemctl show -p MainPID kyc-tokend`
    const before = await sh(files)
    expect(await sh(`${command.trimEnd()} --force`)).toContain('Nothing was changed')
    expect(await sh(files)).toBe(before)
    await follow('checked')
  })

  it('has its secret rotated by hand', async () => {
    await sh('echo sandbox-secret >/root/NEW')
    await follow('rotate')
    expect(await installation.modesOf('/etc/kyc-tokend/api-secret*')).toEqual(['640 root:kyc-tokend'])
    expect(await sh('kyc-tokend refresh')).toContain('New token')
  })

  /** Puts examples of the package where they belong, and restarts; the group has the token still, and nobody else. */
  async function withExamples(names: string, then: () => Promise<void>): Promise<void> {
    await sh('id stranger || { useradd stranger; useradd -G kyc-token member; }')
    await sh(`cd /usr/share/doc/kyc-tokend/examples; install -D -m 0644 -t ${DROP_INS} ${names}`)
    await follow('after-drop-in')
    expect(await installation.fullToken('member')).toMatch(/^ey/)
    expect(await run(['kyc-tokend', 'token'], { as: 'stranger' })).toMatchObject({ status: 77, stdout: '' })
    expect((await attempt('cat /run/kyc-tokend/token', 'stranger')).status).not.toBe(0)
    for (const user of ['member', 'stranger'])
      expect((await attempt('cat /etc/kyc-tokend/api-secret', user)).status).not.toBe(0)
    expect(await sh('kyc-tokend check')).toContain('No fault')
    await then()
    await sh(`cd ${DROP_INS}; rm ${names}`)
    await follow('after-drop-in')
  }

  it('runs compiled code with many-requests.conf, and starts again after a kill with restart-steps.conf', async () => {
    const words = async (): Promise<string> =>
      /argv\[\]=(.*?) ;/.exec(await installation.show('ExecStart'))![1]!
    // Memory that holds code of its own belongs to no file.
    const compiled = `grep -cE '^\\S+ r.x. \\S+ 00:00 0 *$' /proc/$(systemctl show -p MainPID --value kyc-tokend)/maps || true`
    const usual = await words()
    expect(usual).toContain('--jitless')
    expect(Number(await sh(compiled))).toBe(0)
    await withExamples('many-requests.conf restart-steps.conf', async () => {
      expect(await words()).toBe(usual.replace(' --jitless', ''))
      expect(Number(await sh(compiled))).toBeGreaterThan(0)
      const version = Number(/\d+/.exec(await sh('systemctl --version'))![0])
      // Before 254 systemd says that it does not know the settings.
      if (version < 254) await installation.expectJournal('kyc-tokend', /Unknown key (name )?'RestartSteps'/)
      else expect(await installation.show('RestartSteps')).toBe('8')
      const pid = await installation.show('MainPID')
      await sh('systemctl kill --signal=KILL --kill-whom=main kyc-tokend')
      await installation.restarted(pid)
      expect(await installation.fullToken('member')).toMatch(/^ey/)
    })
    expect(Number(await sh(compiled))).toBe(0)
  })

  it('reaches the service through the proxy of proxy.conf, and names of NO_PROXY without it', async () => {
    await sh('echo 127.0.0.1 proxy.example.com >>/etc/hosts')
    const former = JSON.parse(await sh(`cat ${CONFIG}`)) as object
    /** Nothing listens at either port: which one was tried is in the answer. */
    const triedFor = async (baseUrl: string): Promise<string> => {
      await configure({ baseUrl })
      await sh('systemctl restart kyc-tokend')
      return (await attempt('kyc-tokend refresh 2>&1')).stdout
    }
    await withExamples('proxy.conf', async () => {
      const throughProxy = 'The connection to proxy.example.com:3128 (the proxy of HTTPS_PROXY) failed'
      expect(await triedFor('https://service.example.com')).toContain(throughProxy)
      const direct = '(network): The connection to localhost:8443 failed'
      expect(await triedFor('https://localhost:8443')).toContain(direct)
      await installation.configure(former)
    })
  })

  it('hands programs the API and no token, through nginx', async () => {
    const install = block('api-proxy-install').code.replaceAll('sudo ', '')
    await sh(`useradd billing; useradd other; set -e\n${install}`)
    const edits = "-e 's|api.example.com:443|127.0.0.1:8099|' -e 's|https://kyc_api|http://kyc_api|'"
    await sh(`sed -i ${edits} /etc/kyc-api-proxy.conf`)
    const [reload = '', enable = '', ask = '', log = ''] = block('api-proxy-start').code.split('\n')
    await sh(`${reload}; ${enable}`.replaceAll('sudo ', ''))
    const asked = `${ask.replace('sudo ', '')} -sS -o /dev/null -w '%{http_code}'`
    const own = await sh("curl -s -o /dev/null -w '%{http_code}' http://127.0.0.1:8099/some/path")
    const answers = async (): Promise<boolean> =>
      (await run(['sh', '-c', asked], { as: 'billing' })).stdout === own
    expect(await answers()).toBe(true)
    expect(await sh(asked.replace('/some/path', '/other'), { as: 'billing' })).toBe('403')
    expect((await run(['sh', '-c', asked], { as: 'other' })).status).not.toBe(0)
    expect((await run(['cat', '/run/kyc-tokend/token'], { as: 'billing' })).status).not.toBe(0)
    await sh('systemctl reload kyc-api-proxy')
    await expectUntil('an answer after a reload', answers)
    await sh('systemctl restart kyc-api-proxy')
    expect(await answers()).toBe(true)
    expect(await sh(`${log.replace('sudo ', '')} --no-pager`)).toMatch(/GET \/some\/path (\d{3}) "\1"/)
    await sh('systemctl disable --now kyc-api-proxy')
  })

  it('writes a token file in another directory', async () => {
    await follow('other-directory')
    const shown = /`("path": "\/srv[^`]*)`, `("mode"[^`]*)`/.exec(manualText())
    await configure({ tokenFiles: [JSON.parse(`{${shown?.[1]},${shown?.[2]}}`)] })
    await installation.dropIn('token-files', dropInsOf('token-files.conf')[0])
    await follow('after-drop-in')
    const file = '/srv/app/kyc-token/token'
    await expectUntil('the file', async () => (await attempt(`test -e ${file}`)).status === 0)
    expect(await installation.modesOf(file)).toEqual(['640 kyc-tokend:www-data'])
  })

  it('takes its secrets from systemd, plain and encrypted', async () => {
    const [plain = '', encrypted = ''] = dropInsOf('credentials.conf')
    await configure({ credentials: JSON.parse(block('credential-sources').code) })
    await sh('chmod 0600 /etc/kyc-tokend/api-*; chown root:root /etc/kyc-tokend/api-*')
    const encrypt = block('encrypt-credential').code.replace('sudo ', '')
    await sh(encrypt.replace('FILE', '/etc/kyc-tokend/api-secret'))
    for (const text of [plain, plain.replace(/^LoadCredential=api-secret.*/m, encrypted)]) {
      await installation.dropIn('credentials', text)
      await follow('after-drop-in')
      expect(await sh('kyc-tokend refresh')).toContain('New token')
    }
  })

  it('answers the three commands of troubleshooting, and the two of README.md', async () => {
    for (const name of ['troubleshooting', 'status-and-check']) expect(await follow(name)).toMatch(/No fault/)
  })

  it('has an alert command, and a rehearsal of it', async () => {
    await follow('alert-command')
    expect(await installation.modesOf('/etc/kyc-tokend/alert-command')).toEqual(['755 root:root'])
  })

  it('stops with its sockets', async () => {
    await follow('stop')
    const units = 'kyc-tokend.service kyc-tokend.socket kyc-tokend-http.socket'
    expect((await attempt(`systemctl is-active ${units}`)).stdout).toBe('inactive\ninactive\ninactive\n')
    expect((await attempt('kyc-tokend token --wait 0s')).status).toBe(69)
    await sh('systemctl disable kyc-tokend')
    const enabled = await attempt('systemctl is-enabled kyc-tokend.service kyc-tokend.socket')
    expect(enabled.stdout).toBe('disabled\ndisabled\n')
  })
})
