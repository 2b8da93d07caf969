// Follows the task pages of the manual, word for word, on a machine with a real systemd.
import { copyFileSync, readFileSync, writeFileSync } from 'node:fs'
import { mkdtemp, rm } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { afterAll, beforeAll, describe, expect, it } from 'vitest'
import { bootMachine, whyNoMachine, type Machine } from '../support/machine.ts'
import { expectUntil } from '../support/until.ts'
import { block, manualText } from './manual.ts'
import { copyProject } from './build-aside.ts'

const why = whyNoMachine()
const isRequired = process.env['KYC_TOKEND_REQUIRE_SYSTEMD'] === '1'
if (why !== undefined && !isRequired)
  process.stderr.write(`Installing as the manual says is skipped: ${why}\n`)

const CONFIG = '/etc/kyc-tokend/kyc-tokend.config.json'
const DROP_INS = '/etc/systemd/system/kyc-tokend.service.d'
let machine: Machine
let directory: string

/** The commands of a block; root needs no sudo. */
function commandsOf(name: string): string[] {
  return block(name).code.replaceAll('sudo ', '').split('\n')
}

async function follow(name: string): Promise<void> {
  for (const command of commandsOf(name)) await machine.sh(command)
}

/** The drop-ins of this name, one after the other. */
function dropInsOf(name: string): string[] {
  const marked = manualText().matchAll(/<!-- drop-in: ([\w.-]+) -->\n+```ini\n([\s\S]*?)```/g)
  return [...marked].filter(([, candidate]) => candidate === name).map(([, , text = '']) => text)
}

async function dropIn(name: string, text: string): Promise<void> {
  await machine.sh(`mkdir -p ${DROP_INS}; cat >${DROP_INS}/${name}`, { input: text })
  await machine.sh('systemctl daemon-reload && systemctl restart kyc-tokend')
}

async function configure(change: (config: Record<string, unknown>) => void): Promise<void> {
  const config = JSON.parse(await machine.sh(`cat ${CONFIG}`)) as Record<string, unknown>
  change(config)
  await machine.sh(`cat >${CONFIG}`, { input: JSON.stringify(config) })
}

async function token(): Promise<string> {
  return machine.sh('kyc-tokend token')
}

describe.skipIf(why !== undefined && !isRequired)('installed as the manual says', () => {
  beforeAll(async () => {
    directory = await mkdtemp(join(tmpdir(), 'kyc-tokend-test-'))
    const run = copyProject(directory)
    run('npm run build')
    // As `npm run deb`, without its minute of compression.
    const file = run('node_modules/.bin/node systemd/build-deb.ts --compression none')
    machine = await bootMachine()
    copyFileSync(file.trim(), machine.path('/root/kyc-tokend.deb'))
    await machine.sh('dpkg -i /root/kyc-tokend.deb', { timeoutMs: 170_000 })
    await machine.sh('systemd-run --unit=stand-in kyc-tokend sandbox --port 8099 --token-lifetime 1h')
  }, 180_000)
  afterAll(async () => {
    await machine?.stop()
    await rm(directory, { recursive: true, force: true })
  })

  it('is set up by one command, which changes nothing when it is run again', async () => {
    await machine.sh('echo sandbox-key >key.txt; echo sandbox-secret >secret.txt')
    await expectUntil(
      'the stand-in',
      async () => (await machine.run(['curl', '-s', 'http://127.0.0.1:8099'])).status === 0,
    )
    const command = block('setup')
      .code.replace('sudo ', '')
      .replace('https://api.example.com', 'http://127.0.0.1:8099')
    expect(await machine.sh(command)).toMatch(/kyc-tokend runs and holds a token, good for/)
    expect(await token()).toMatch(/^ey/)
    expect(await machine.sh(`stat -c '%a %U:%G' ${CONFIG} /etc/kyc-tokend/api-secret`)).toBe(
      '640 root:kyc-tokend\n640 root:kyc-tokend\n',
    )
    const files = `stat -c '%i %Y %n' /etc/kyc-tokend/*; systemctl show -p MainPID kyc-tokend`
    const before = await machine.sh(files)
    expect(await machine.sh(command)).toContain('Nothing was changed')
    expect(await machine.sh(files)).toBe(before)
    await follow('checked')
  })

  it('gives the token to members of the group, and not the secret', async () => {
    await machine.sh('useradd member; usermod -aG kyc-token member')
    expect(await machine.sh('cat /run/kyc-tokend/token', { as: 'member' })).toMatch(/^ey/)
    const { status } = await machine.run(['cat', '/etc/kyc-tokend/api-secret'], { as: 'member' })
    expect(status).not.toBe(0)
  })

  it('hands programs the API and no token, through nginx', async () => {
    const install = block('api-proxy-install').code.replaceAll('sudo ', '')
    await machine.sh(`useradd billing; useradd other; ${install.replace(/^apt .*/, 'set -e')}`)
    const file = machine.path('/etc/kyc-api-proxy.conf')
    const config = readFileSync(file, 'utf8')
      .replace('server api.example.com:443', 'server 127.0.0.1:8099')
      .replaceAll('https://kyc_api', 'http://kyc_api')
    writeFileSync(file, config)
    const [reload = '', enable = '', ask = '', log = ''] = block('api-proxy-start').code.split('\n')
    await machine.sh(`${reload}; ${enable}`.replaceAll('sudo ', ''))
    const asked = `${ask} -sS -o /dev/null -w '%{http_code}'`
    const direct = "curl -s -o /dev/null -w '%{http_code}' http://127.0.0.1:8099/some/path"
    const own = await machine.sh(direct)
    const answers = async (): Promise<boolean> =>
      (await machine.run(['sh', '-c', asked], { as: 'billing' })).stdout === own
    await expectUntil('an answer of the stand-in through nginx', answers)
    expect(await machine.sh(asked.replace('/some/path', '/other'), { as: 'billing' })).toBe('403')
    expect((await machine.run(['sh', '-c', asked], { as: 'other' })).status).not.toBe(0)
    expect((await machine.run(['cat', '/run/kyc-tokend/token'], { as: 'billing' })).status).not.toBe(0)
    await machine.sh('systemctl reload kyc-api-proxy')
    await expectUntil('an answer after a reload', answers)
    await machine.sh('systemctl restart kyc-api-proxy')
    await expectUntil('an answer after a restart', answers)
    expect(await machine.sh(`${log} --no-pager`)).toMatch(/GET \/some\/path (\d{3}) "\1"/)
    await machine.sh('systemctl disable --now kyc-api-proxy')
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
      async () => (await machine.run(['test', '-e', '/srv/app/kyc-token/token'])).status === 0,
    )
    expect(await machine.sh("stat -c '%a %U:%G' /srv/app/kyc-token/token")).toBe('640 kyc-tokend:www-data\n')
  })

  it('takes its secrets from systemd, plain and encrypted', async () => {
    const [plain = '', encrypted = ''] = dropInsOf('credentials.conf')
    await configure((config) => {
      const shown = /`("apiKey": \{ "credential"[^`]*)`, `("apiSecret": \{[^`]*)`/.exec(
        manualText().replaceAll('\n', ' '),
      )
      config['credentials'] = JSON.parse(`{${shown?.[1]},${shown?.[2]}}`)
    })
    await machine.sh('chmod 0600 /etc/kyc-tokend/api-*; chown root:root /etc/kyc-tokend/api-*')
    await dropIn('credentials.conf', plain)
    expect(await machine.sh('kyc-tokend refresh')).toContain('New token')
    const encrypt =
      /systemd-creds encrypt .*/.exec(manualText())?.[0].replace('FILE', '/etc/kyc-tokend/api-secret') ?? ''
    await machine.sh(encrypt)
    await dropIn('credentials.conf', plain.replace(/^LoadCredential=api-secret.*\n/m, encrypted))
    expect(await machine.sh('kyc-tokend refresh')).toContain('New token')
  })

  it('goes through a proxy, which is not asked for a service on this host', async () => {
    await dropIn('proxy.conf', dropInsOf('proxy.conf')[0] ?? '')
    expect(await machine.sh('kyc-tokend refresh')).toContain('New token')
    expect(await machine.sh('systemctl show -P Environment kyc-tokend')).toContain('proxy.example.com')
  })

  it('does without HTTP', async () => {
    await configure((config) => (config['http'] = false))
    await follow('no-http')
    expect(await machine.sh('kyc-tokend status --json')).toContain('"http":null')
    expect((await machine.run(['test', '-e', '/run/kyc-tokend/http.sock'])).status).not.toBe(0)
    await machine.sh('systemctl unmask kyc-tokend-http.socket')
  })

  it('has an alert command', async () => {
    await follow('alert-command')
    expect(await machine.sh("stat -c '%a' /etc/kyc-tokend/alert-command")).toBe('755\n')
  })

  it('stops with its sockets', async () => {
    await follow('stop')
    const { stdout } = await machine.run([
      'systemctl',
      'is-active',
      'kyc-tokend.service',
      'kyc-tokend.socket',
      'kyc-tokend-http.socket',
    ])
    expect(stdout).toBe('inactive\ninactive\ninactive\n')
    expect((await machine.run(['kyc-tokend', 'token', '--wait', '0s'])).status).toBe(69)
    await machine.sh('systemctl disable kyc-tokend')
    const enabled = await machine.run(['systemctl', 'is-enabled', 'kyc-tokend.service', 'kyc-tokend.socket'])
    expect(enabled.stdout).toBe('disabled\ndisabled\n')
  })
})

it('the package that apt is shown to install is the one that is made', () => {
  const script = readFileSync(new URL('../../systemd/build-deb.ts', import.meta.url), 'utf8')
  expect(script).toContain('`kyc-tokend_${version}_${architecture}.deb`')
  expect(script).toContain("arch: { type: 'string', default: 'amd64' }")
})
