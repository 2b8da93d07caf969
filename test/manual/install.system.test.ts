// Follows the task pages of the manual, word for word, on a machine with a real systemd.
import { readFileSync, writeFileSync } from 'node:fs'
import { expect, it } from 'vitest'
import { CONFIG, describeInstallation } from '../support/installation.ts'
import { expectUntil } from '../support/until.ts'
import { block, manualText } from './manual.ts'

const DROP_INS = '/etc/systemd/system/kyc-tokend.service.d'

/** The drop-ins of this name, one after the other. */
function dropInsOf(name: string): string[] {
  const marked = manualText().matchAll(/<!-- drop-in: ([\w.-]+) -->\n+```ini\n([\s\S]*?)```/g)
  return [...marked].filter(([, candidate]) => candidate === name).map(([, , text = '']) => text)
}

describeInstallation('installed as the manual says', {}, (installation) => {
  const { attempt, follow, run, sh } = installation
  const token = (): Promise<string> => sh('kyc-tokend token')

  async function dropIn(name: string, text: string): Promise<void> {
    await sh(`mkdir -p ${DROP_INS}; cat >${DROP_INS}/${name}`, { input: text })
    await follow('after-drop-in')
  }

  async function configure(change: (config: Record<string, unknown>) => void): Promise<void> {
    const config = JSON.parse(await sh(`cat ${CONFIG}`)) as Record<string, unknown>
    change(config)
    await sh(`cat >${CONFIG}`, { input: JSON.stringify(config) })
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
    expect(await sh(`stat -c '%a %U:%G' ${CONFIG} /etc/kyc-tokend/api-secret`)).toBe(
      '640 root:kyc-tokend\n640 root:kyc-tokend\n',
    )
    const files = `stat -c '%i %Y %n' /etc/kyc-tokend/*; systemctl show -p MainPID kyc-tokend`
    const before = await sh(files)
    expect(await sh(`${command.trimEnd()} --force`)).toContain('Nothing was changed')
    expect(await sh(files)).toBe(before)
    await follow('checked')
  })

  it('has its secret rotated by hand', async () => {
    await sh('echo sandbox-secret >/root/NEW')
    await follow('rotate')
    expect(await sh("stat -c '%a %U:%G' /etc/kyc-tokend/api-secret*")).toBe('640 root:kyc-tokend\n')
    expect(await sh('kyc-tokend refresh')).toContain('New token')
  })

  /** Puts an example of the package where it belongs, restarts, and asks who has the token then. */
  async function withExample(name: string): Promise<void> {
    const example = `/usr/share/doc/kyc-tokend/examples/${name}`
    await sh('id stranger || { useradd stranger; useradd -G kyc-token member; }')
    await sh(`install -D -m 0644 -t ${DROP_INS} ${example}`)
    await follow('after-drop-in')
    const held = await sh('kyc-tokend token --wait 10s', { as: 'member' })
    expect(held).toMatch(/^ey/)
    expect(await run(['kyc-tokend', 'token'], { as: 'stranger' })).toMatchObject({ status: 77, stdout: '' })
    expect((await attempt('cat /run/kyc-tokend/token', 'stranger')).status).not.toBe(0)
    for (const user of ['member', 'stranger'])
      expect((await attempt('cat /etc/kyc-tokend/api-secret', user)).status).not.toBe(0)
    expect(await sh('kyc-tokend check')).toContain('No fault')
  }
  const without = async (name: string): Promise<void> => {
    await sh(`rm ${DROP_INS}/${name}`)
    await follow('after-drop-in')
  }

  it('runs compiled code with many-requests.conf, and all else as the unit says', async () => {
    const words = async (): Promise<string> =>
      /argv\[\]=(.*?) ;/.exec(await installation.show('ExecStart'))![1]!
    // Memory that holds code of its own belongs to no file.
    const compiled = `grep -cE '^\\S+ r.x. \\S+ 00:00 0 *$' /proc/$(systemctl show -p MainPID --value kyc-tokend)/maps || true`
    const usual = await words()
    expect(usual).toContain('--jitless')
    expect(Number(await sh(compiled))).toBe(0)
    await withExample('many-requests.conf')
    expect(await words()).toBe(usual.replace(' --jitless', ''))
    expect(Number(await sh(compiled))).toBeGreaterThan(0)
    await without('many-requests.conf')
    expect(Number(await sh(compiled))).toBe(0)
  })

  it('starts with restart-steps.conf, and again after a kill', async () => {
    await withExample('restart-steps.conf')
    const version = Number(/\d+/.exec(await sh('systemctl --version'))![0])
    // Before 254 systemd says that it does not know the settings.
    if (version < 254) await installation.expectJournal('kyc-tokend', /Unknown key (name )?'RestartSteps'/)
    else expect(await installation.show('RestartSteps')).toBe('8')
    const pid = await installation.show('MainPID')
    await sh('systemctl kill --signal=KILL --kill-whom=main kyc-tokend')
    await installation.restarted(pid)
    expect(await sh('kyc-tokend token --wait 10s', { as: 'member' })).toMatch(/^ey/)
    await without('restart-steps.conf')
  })

  it('reaches the service through the proxy of proxy.conf, and names of NO_PROXY without it', async () => {
    await sh('echo 127.0.0.1 proxy.example.com >>/etc/hosts')
    const former = await sh(`cat ${CONFIG}`)
    /** Nothing listens at either port: which one was tried is in the answer. */
    const triedFor = async (baseUrl: string): Promise<string> => {
      await configure((config) => {
        config['baseUrl'] = baseUrl
      })
      await sh('systemctl restart kyc-tokend')
      return (await attempt('kyc-tokend refresh 2>&1')).stdout
    }
    await withExample('proxy.conf')
    expect(await triedFor('https://service.example.com')).toContain(
      'The connection to proxy.example.com:3128 (the proxy of HTTPS_PROXY) failed',
    )
    expect(await triedFor('https://localhost:8443')).toContain(
      '(network): The connection to localhost:8443 failed',
    )
    // As the example says, every user reads it.
    expect(await sh('systemctl show -p Environment kyc-tokend', { as: 'stranger' })).toContain(
      'HTTPS_PROXY=http://proxy.example.com:3128',
    )
    await sh(`cat >${CONFIG}`, { input: former })
    await without('proxy.conf')
  })

  it('hands programs the API and no token, through nginx', async () => {
    const install = block('api-proxy-install').code.replaceAll('sudo ', '')
    await sh(`useradd billing; useradd other; set -e\n${install}`)
    const file = installation.machine.path('/etc/kyc-api-proxy.conf')
    const config = readFileSync(file, 'utf8')
      .replace('server api.example.com:443', 'server 127.0.0.1:8099')
      .replaceAll('https://kyc_api', 'http://kyc_api')
    writeFileSync(file, config)
    const [reload = '', enable = '', ask = '', log = ''] = block('api-proxy-start').code.split('\n')
    await sh(`${reload}; ${enable}`.replaceAll('sudo ', ''))
    const asked = `${ask.replace('sudo ', '')} -sS -o /dev/null -w '%{http_code}'`
    const direct = "curl -s -o /dev/null -w '%{http_code}' http://127.0.0.1:8099/some/path"
    const own = await sh(direct)
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
    await configure((config) => {
      const shown = /`("path": "\/srv[^`]*)`, `("mode"[^`]*)`/.exec(manualText())
      config['tokenFiles'] = [JSON.parse(`{${shown?.[1]},${shown?.[2]}}`)]
    })
    await dropIn('token-files.conf', dropInsOf('token-files.conf')[0] ?? '')
    await expectUntil(
      'the file',
      async () => (await attempt('test -e /srv/app/kyc-token/token')).status === 0,
    )
    expect(await sh("stat -c '%a %U:%G' /srv/app/kyc-token/token")).toBe('640 kyc-tokend:www-data\n')
  })

  it('takes its secrets from systemd, plain and encrypted', async () => {
    const [plain = '', encrypted = ''] = dropInsOf('credentials.conf')
    await configure((config) => {
      config['credentials'] = JSON.parse(block('credential-sources').code)
    })
    await sh('chmod 0600 /etc/kyc-tokend/api-*; chown root:root /etc/kyc-tokend/api-*')
    await dropIn('credentials.conf', plain)
    expect(await sh('kyc-tokend refresh')).toContain('New token')
    const encrypt = block('encrypt-credential').code.replace('sudo ', '')
    await sh(encrypt.replace('FILE', '/etc/kyc-tokend/api-secret'))
    await dropIn('credentials.conf', plain.replace(/^LoadCredential=api-secret.*\n/m, encrypted))
    expect(await sh('kyc-tokend refresh')).toContain('New token')
  })

  it('answers the three commands of troubleshooting, and the two of README.md', async () => {
    for (const name of ['troubleshooting', 'status-and-check']) expect(await follow(name)).toMatch(/No fault/)
  })

  it('has an alert command, and a rehearsal of it', async () => {
    await follow('alert-command')
    expect(await sh("stat -c '%a' /etc/kyc-tokend/alert-command")).toBe('755\n')
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
