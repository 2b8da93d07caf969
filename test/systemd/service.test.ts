import { copyFileSync, mkdirSync, readdirSync, readFileSync } from 'node:fs'
import { mkdtemp, rm } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import path from 'node:path'
import { afterAll, afterEach, beforeAll, describe, expect, it, onTestFinished } from 'vitest'
import { bootMachine, whyNoMachine, type Machine } from '../support/machine.ts'
import { buildPackage } from '../support/package.ts'
import { expectUntil } from '../support/until.ts'

// One machine for the whole life of an installation, from dpkg -i to dpkg --purge: the tests build on each other.

const why = whyNoMachine()
const isRequired = process.env['KYC_TOKEND_REQUIRE_SYSTEMD'] === '1'
if (why !== undefined && !isRequired) process.stderr.write(`test/systemd is skipped: ${why}\n`)

const CONFIG = '/etc/kyc-tokend/kyc-tokend.config.json'
const SERVICE_URL = 'http://127.0.0.1:8099'
const UNITS = 'kyc-tokend.service kyc-tokend.socket kyc-tokend-http.socket kyc-tokend-alert.path'
const config = {
  baseUrl: SERVICE_URL,
  credentials: { apiKey: 'sandbox-key', apiSecret: 'sandbox-secret' },
  tokenFiles: [{ path: 'token', mode: '0640' }],
}
let machine: Machine
let place: string

describe.skipIf(why !== undefined && !isRequired)('kyc-tokend as a service', () => {
  beforeAll(async () => {
    place = await mkdtemp(path.join(tmpdir(), 'kyc-tokend-test-'))
    const packages = await Promise.all(
      ['1.0.0', '1.0.1'].map(async (version) => {
        const out = path.join(place, version)
        mkdirSync(out)
        return buildPackage(out, { version })
      }),
    )
    machine = await bootMachine()
    for (const file of packages) copyFileSync(file, machine.path(`/root/${path.basename(file)}`))
  }, 180_000)

  afterEach(async ({ task }) => {
    if (task.result?.state === 'fail')
      process.stderr.write(await machine.sh("journalctl -o short-precise -n 40 -u 'kyc-tokend*'"))
  })

  afterAll(async () => {
    await rm(place, { recursive: true, force: true })
    await machine?.stop()
  })

  it('is installed, says what is next, and waits for a configuration', async () => {
    const output = await machine.sh(install('1.0.0'))
    expect(output).toContain('Next:')
    expect(output).toContain('systemctl enable --now kyc-tokend')
    expect((await machine.run(['systemctl', 'is-active', ...UNITS.split(' ')])).stdout).not.toMatch(
      /^active/m,
    )
    expect(await machine.sh('systemctl is-enabled kyc-tokend.socket kyc-tokend-http.socket')).toBe(
      'enabled\nenabled\n',
    )
    await machine.sh('useradd member; usermod -aG kyc-token member; useradd stranger')
  })

  it('has units that systemd has nothing to say about, and a tight sandbox', async () => {
    const { status, stdout, stderr } = await machine.run([
      'systemd-analyze',
      'verify',
      ...UNITS.split(' '),
      'kyc-tokend-alert.service',
    ])
    expect({ status, said: stdout + stderr }).toEqual({ status: 0, said: '' })
    expect(await exposureOf('kyc-tokend.service')).toBeLessThanOrEqual(1.2)
    expect(await exposureOf('kyc-tokend-alert.service')).toBeLessThanOrEqual(1.5)
  })

  it('starts with a configuration, and says how it is', async () => {
    await machine.sh(`systemd-run --unit=stand-in kyc-tokend sandbox --port 8099 --token-lifetime 1h`)
    await expectJournal('stand-in', 'Requests:')
    await configure(config)
    expect(await machine.sh('kyc-tokend check')).toContain('No fault')
    await machine.sh('systemctl enable --now kyc-tokend')
    expect(await show('StatusText')).not.toBe('')
    expect(await machine.sh('kyc-tokend status')).toMatch(/ready/i)
    await expectRequests(1)
  })

  it('gives the token to members of the clients’ group, and nothing else', async () => {
    const token = await fullToken('member')
    expect(token).toMatch(/^ey/)
    expect(await machine.sh('kyc-tokend token', { as: 'member' })).toBe(`${token}\n`)
    expect(await machine.sh('cat /run/kyc-tokend/token', { as: 'member' })).toBe(token)
    expect(await overHttp('member')).toContain(token)
    for (const file of [CONFIG, '/var/lib/kyc-tokend/.'])
      expect((await machine.run(['cat', file], { as: 'member' })).stderr).toContain('Permission denied')
    expect(await modesOf('/run/kyc-tokend', '/run/kyc-tokend/ipc.sock', '/run/kyc-tokend/token')).toEqual([
      '2751 kyc-tokend:kyc-token',
      '660 kyc-tokend:kyc-token',
      '640 kyc-tokend:kyc-token',
    ])
    expect(await modesOf('/var/lib/kyc-tokend', CONFIG)).toEqual([
      '700 kyc-tokend:kyc-tokend',
      '640 root:kyc-tokend',
    ])
  })

  it('gives nothing to anybody else', async () => {
    for (const command of ['kyc-tokend token', 'kyc-tokend token --wait 1s', 'kyc-tokend status']) {
      const { status, stdout } = await machine.run(['sh', '-c', command], { as: 'stranger' })
      expect({ command, status, stdout }).toEqual({ command, status: 77, stdout: '' })
    }
    const { stderr } = await machine.run(['cat', '/run/kyc-tokend/token'], { as: 'stranger' })
    expect(stderr).toContain('Permission denied')
  })

  it('answers in the shell where that is right', async () => {
    const [from, till, token] = (await machine.sh('cat /run/kyc-tokend/token.front')).trim().split(' ')
    expect(token).toBe(await fullToken('member'))
    expect(Number(till) - Number(from)).toBeGreaterThan(3000)
    expect(await modesOf('/run/kyc-tokend/token.front')).toEqual(['640 kyc-tokend:kyc-token'])
    // Nothing but the shell is needed for it.
    await machine.sh('chmod 0 /usr/lib/kyc-tokend/cli.cjs')
    expect(await machine.sh('kyc-tokend token', { as: 'member' })).toBe(`${token}\n`)
    await machine.sh('chmod 644 /usr/lib/kyc-tokend/cli.cjs')
  })

  it('reloads a good configuration, and keeps the running one against a faulty one', async () => {
    await configure({ ...config, log: { level: 'debug' } })
    await machine.sh('systemctl reload kyc-tokend')
    await expectJournal('kyc-tokend', 'event=reloaded')
    await configure({ ...config, refresh: { maxAge: 15 } })
    const { status } = await machine.run(['systemctl', 'reload', 'kyc-tokend'])
    expect(status).not.toBe(0)
    await expectJournal('kyc-tokend', 'refresh.maxAge')
    expect(await fullToken('member')).toMatch(/^ey/)
    await configure(config)
    await machine.sh('systemctl reload kyc-tokend')
    expect(await overHttp('member')).toContain(await fullToken('member'))
    await expectRequests(1)
  })

  it('is there again after a kill, with the same token, for a client that asked in between', async () => {
    const before = await fullToken('member')
    await machine.sh('systemctl kill --signal=KILL --kill-whom=main kyc-tokend')
    expect(await fullToken('member')).toBe(before)
    expect(await show('NRestarts')).toBe('1')
    await expectRequests(1)
  })

  it('is found by the watchdog when it hangs', { timeout: 60_000 }, async () => {
    await dropIn('watchdog', '[Service]\nWatchdogSec=20s')
    await machine.sh('systemctl restart kyc-tokend')
    const before = await show('MainPID')
    await machine.sh(`kill -STOP ${before}`)
    await expectUntil('another process of the daemon', async () => (await show('MainPID')) !== before, {
      withinMs: 40_000,
    })
    await expectJournal('kyc-tokend', 'Watchdog timeout')
    expect(await fullToken('member')).toMatch(/^ey/)
    await expectRequests(1)
    await dropIn('watchdog', undefined)
  })

  it('alerts an operator when the account is not active, and asks no more', async () => {
    await machine.sh(`cat >/etc/kyc-tokend/alert-command; chmod 755 /etc/kyc-tokend/alert-command`, {
      input: '#!/bin/sh\necho "told: $#:$1: $(cat)"\nid -Gn\ncat /run/kyc-tokend/token\n',
    })
    const before = await requests()
    await scenario('account-inactive')
    expect((await machine.run(['kyc-tokend', 'refresh'])).status).toBe(77)
    await expectRequests(before + 1)
    await expectJournal('kyc-tokend -p alert', 'account-inactive')
    const told = await expectJournal('kyc-tokend-alert', '/run/kyc-tokend/token: Permission denied')
    expect(told).toMatch(/told: 1:raised: .*"reason": ?"account-inactive"/)
    expect(told).not.toContain('kyc-token ')
    expect(await modesOf('/run/kyc-tokend/alert.json')).toEqual(['644 kyc-tokend:kyc-token'])

    await machine.sh('systemctl kill --signal=KILL --kill-whom=main kyc-tokend')
    await expectUntil('the daemon after its crash', async () => (await show('ActiveState')) === 'active')
    expect((await machine.run(['kyc-tokend', 'status'])).status).toBe(77)
    await expectRequests(before + 1)

    await scenario('ok')
    await machine.sh('kyc-tokend refresh')
    await expectJournal('kyc-tokend-alert', 'told: 1:resolved: {')
    await expectRequests(before + 2)
    expect(await machine.sh('systemctl is-active kyc-tokend-alert.path')).toBe('active\n')
  })

  it(
    'ends over a faulty configuration while a client keeps trying, and starts when it is mended',
    { timeout: 120_000 },
    async () => {
      await configure({ ...config, baseUrl: 'http://example.com' })
      const { status } = await machine.run(['systemctl', 'restart', 'kyc-tokend'])
      expect(status).not.toBe(0)
      expect(await show('ExecMainStatus')).toBe('78')
      const startsBefore = await starts()
      const deadline = Date.now() + 7_000
      while (Date.now() < deadline) {
        const client = await machine.run(['kyc-tokend', 'token', '--wait', '1s'], { as: 'member' })
        expect(client.stdout).toBe('')
        expect(client.stderr).toContain('misconfigured')
        expect(client.status).toBe(78)
      }
      expect((await starts()) - startsBefore).toBeLessThanOrEqual(5)
      expect(await machine.sh('systemctl is-active kyc-tokend.socket kyc-tokend-http.socket')).toBe(
        'active\nactive\n',
      )
      await expectJournal('kyc-tokend', 'baseUrl')
      await configure(config)
      await machine.sh('systemctl restart kyc-tokend')
      expect(await fullToken('member')).toMatch(/^ey/)
    },
  )

  it('takes its secret from a credential of systemd, encrypted too', async () => {
    const credentials = { apiKey: 'sandbox-key', apiSecret: { credential: 'api-secret' } }
    await configure({ ...config, credentials })
    await machine.sh('umask 077; echo sandbox-secret >/root/api-secret')
    const example = readFileSync(machine.path('/usr/share/doc/kyc-tokend/examples/credentials.conf'), 'utf8')
    expect(example).toContain('LoadCredential=api-secret:')
    await dropIn('credentials', '[Service]\nLoadCredential=api-secret:/root/api-secret')
    await machine.sh('systemctl restart kyc-tokend')
    await machine.sh('kyc-tokend refresh')
    await machine.sh('systemctl reload kyc-tokend')

    await machine.sh(
      'systemd-creds encrypt --with-key=host --name=api-secret /root/api-secret /root/api-secret.cred',
    )
    await dropIn('credentials', '[Service]\nLoadCredentialEncrypted=api-secret:/root/api-secret.cred')
    await machine.sh('systemctl restart kyc-tokend')
    await machine.sh('kyc-tokend refresh')
    await dropIn('credentials', undefined)
    await configure(config)
    await machine.sh('systemctl restart kyc-tokend')
  })

  it('is really forbidden what its sandbox forbids', async () => {
    copyFileSync(path.join(import.meta.dirname, 'probe.cjs'), machine.path('/usr/lib/kyc-tokend/probe.cjs'))
    onTestFinished(async () => void (await machine.run(['rm', '-f', '/usr/lib/kyc-tokend/probe.cjs'])))
    // The same unit with another program, and without what makes it the daemon.
    await machine.sh(`
      sed -e '/^ExecStart=/s/cli.cjs run/probe.cjs/' -e 's/^Type=.*/Type=oneshot/' -e '/^Restart/d' \\
        -e '/^WatchdogSec/d' -e '/^Sockets/d' -e '/^Requires/d' -e '/^ExecReload/d' \\
        /usr/lib/systemd/system/kyc-tokend.service >/run/systemd/system/probe.service
      systemctl daemon-reload
      systemctl start probe`)
    const found = /^\{.*\}$/m.exec(await expectJournal('probe', '}\n'))
    expect(JSON.parse(found![0])).toEqual({
      'execute /usr/bin/true': 'EACCES',
      'execute in /run/kyc-tokend': 'EACCES',
      'execute in /var/lib/kyc-tokend': 'EACCES',
      'execute in /tmp': 'EACCES',
      'execute in /var/tmp': 'EACCES',
      'execute in /dev/shm': 'EACCES',
      'write /etc/kyc-tokend/x': 'EROFS',
      'write /usr/x': 'EROFS',
      'write /var/lib/x': 'EROFS',
      'write /run/x': 'EACCES',
      'write /run/kyc-tokend/x': 'allowed',
      'write /var/lib/kyc-tokend/x': 'allowed',
      'list /home': 'EACCES',
      'look at process 1': 'ENOENT',
      'read /proc/kallsyms': 'ENOENT',
      'open /dev/mem': 'ENOENT',
      'writable and executable memory': 'EPERM',
      'executable memory later': 'EPERM',
      'a packet socket': 'EAFNOSUPPORT',
      'a netlink socket': 'EAFNOSUPPORT',
      'setuid(0)': 'EPERM',
      'a user namespace': 'EPERM',
      mount: 'EPERM',
      ptrace: 'EPERM',
      keyctl: 'EPERM',
      'a set-user-id file': 'EPERM',
      'compile a string': 'EvalError',
    })
  })

  it('is upgraded without a client noticing', { timeout: 120_000 }, async () => {
    const before = await fullToken('member')
    const asked = await requests()
    const loop = machine.start(
      [
        'sh',
        '-c',
        'while [ ! -e /tmp/enough ]; do kyc-tokend token --wait 10s || echo "failed: $?"; sleep 0.1; done',
      ],
      { as: 'member' },
    )
    let printed = ''
    loop.stdout?.on('data', (chunk: Buffer) => (printed += chunk.toString()))
    const over = new Promise((resolve) => loop.once('close', resolve))
    await expectUntil('some tokens before the upgrade', () => printed.split('\n').length > 3)
    await machine.sh(install('1.0.1'))
    const duringUpgrade = printed.length
    await expectUntil(
      'some tokens after the upgrade',
      () => printed.length > duringUpgrade + 2 * before.length,
    )
    await machine.sh('touch /tmp/enough')
    await over
    expect(new Set(printed.trim().split('\n'))).toEqual(new Set([before]))
    await expectRequests(asked)
    expect(await machine.sh("dpkg-query -W -f='${Version}' kyc-tokend")).toBe('1.0.1')
    const { daemon } = JSON.parse(await machine.sh('kyc-tokend status --json')) as {
      daemon: { startedAt: string }
    }
    expect(Date.now() - Date.parse(daemon.startedAt)).toBeLessThan(30_000)
  })

  it('hands its metrics to node_exporter as the example shows', async () => {
    await machine.sh(`
      useradd prometheus
      install -d -o prometheus /var/lib/prometheus/node-exporter
      cp /usr/share/doc/kyc-tokend/examples/kyc-tokend-metrics.* /etc/systemd/system/
      systemctl daemon-reload
      systemd-analyze verify kyc-tokend-metrics.service kyc-tokend-metrics.timer
      systemctl start kyc-tokend-metrics.service`)
    expect(await machine.sh('cat /var/lib/prometheus/node-exporter/kyc-tokend.prom')).toContain('# TYPE ')
    expect(await modesOf('/var/lib/prometheus/node-exporter/kyc-tokend.prom')).toEqual([
      '644 prometheus:prometheus',
    ])
    await machine.sh(
      'rm /etc/systemd/system/kyc-tokend-metrics.* /var/lib/prometheus/node-exporter/*; systemctl daemon-reload',
    )
  })

  it('mails an alert as the example shows', async () => {
    const mailServer = `require('node:net').createServer((socket) => {
        const say = (words) => socket.write(words + '\\r\\n')
        let isMail = false
        say('220 here')
        require('node:readline').createInterface({ input: socket }).on('line', (line) => {
          console.log(line)
          if (line === 'DATA') say('354 go on')
          else if (line === 'QUIT') socket.end('221 bye\\r\\n')
          else if (!isMail || line === '.') say('250 ok')
          isMail = line === 'DATA' || (isMail && line !== '.')
        })
      }).listen(25, '127.0.0.1')`
    await machine.sh(`systemd-run --unit=mail-server /usr/lib/kyc-tokend/node -e "${mailServer}"`)
    await expectUntil('the mail server', async () =>
      / 0100007F:0019 00000000:0000 0A /.test(await machine.sh('cat /proc/net/tcp')),
    )
    await machine.sh(
      'install -m 755 /usr/share/doc/kyc-tokend/examples/alert-command /etc/kyc-tokend/alert-command',
    )
    await scenario('account-inactive')
    expect((await machine.run(['kyc-tokend', 'refresh'])).status).toBe(77)
    const mail = await expectJournal('mail-server', 'QUIT')
    expect(mail).toContain('RCPT TO:<root@localhost>')
    expect(mail).toContain('Subject: kyc-tokend: alert raised on ')
    expect(mail).toMatch(/^\{.*"reason":"account-inactive"/m)
    await scenario('ok')
    await machine.sh('kyc-tokend refresh')
    await expectJournal('mail-server', 'Subject: kyc-tokend: alert resolved on ')
    await machine.sh('systemctl stop mail-server')
  })

  it('is stopped together with its sockets, and then nothing starts it', async () => {
    await machine.sh("systemctl stop 'kyc-tokend*'")
    expect((await machine.run(['kyc-tokend', 'token'], { as: 'member' })).status).toBe(69)
    expect(await show('ActiveState')).toBe('inactive')
    await machine.sh('systemctl start kyc-tokend')
    expect(await fullToken('member')).toMatch(/^ey/)
    expect(await machine.sh('systemctl is-active kyc-tokend-http.socket kyc-tokend-alert.path')).toBe(
      'active\nactive\n',
    )
  })

  it('is purged without a trace', { timeout: 120_000 }, async () => {
    await machine.sh('systemctl stop stand-in; dpkg --purge kyc-tokend')
    const left = readdirSync(machine.written, { recursive: true, withFileTypes: true })
      // What the machine has removed of this host's files is a device there.
      .filter((entry) => entry.name.includes('kyc-token') && !entry.isCharacterDevice())
      .map((entry) => path.join(path.relative(machine.written, entry.parentPath), entry.name))
      .filter((file) => !file.startsWith('root/') && !file.startsWith('var/cache/man/'))
    expect(left).toEqual([])
    expect(await machine.sh("find /run -name '*kyc-token*'")).toBe('')
    expect((await machine.run(['getent', 'passwd', 'kyc-tokend'])).stdout).toBe('')
    expect((await machine.run(['getent', 'group', 'kyc-token', 'kyc-tokend'])).stdout).toBe('')
    expect(await machine.sh("systemctl list-units --all --no-legend 'kyc-tokend*'")).toBe('')
  })
})

/** Container images leave documentation out, but the examples are to be tried. */
function install(version: string): string {
  return `dpkg --path-include='/usr/share/doc/kyc-tokend/*' -i /root/kyc-tokend_${version}_amd64.deb`
}

async function configure(settings: object): Promise<void> {
  await machine.sh(`umask 027; cat >${CONFIG}; chgrp kyc-tokend ${CONFIG}`, {
    input: JSON.stringify(settings),
  })
}

/** Writes a drop-in of the service, or removes it. */
async function dropIn(name: string, text: string | undefined): Promise<void> {
  const folder = '/etc/systemd/system/kyc-tokend.service.d'
  if (text === undefined)
    await machine.sh(`rm ${folder}/${name}.conf; rmdir --ignore-fail-on-non-empty ${folder}`)
  else await machine.sh(`mkdir -p ${folder}; cat >${folder}/${name}.conf`, { input: `${text}\n` })
  await machine.sh('systemctl daemon-reload')
}

/** The token as the full program gets it from the daemon. */
async function fullToken(as: string): Promise<string> {
  return (await machine.sh('kyc-tokend token --wait 10s', { as })).trim()
}

async function overHttp(as: string): Promise<string> {
  const script = `
    const options = { socketPath: '/run/kyc-tokend/http.sock', path: '/v1/token', headers: { accept: 'text/plain' } }
    require('node:http').get(options, (answer) => answer.pipe(process.stdout))`
  return machine.sh(`/usr/lib/kyc-tokend/node -e "${script}"`, { as })
}

async function scenario(name: string): Promise<void> {
  const script = `fetch('${SERVICE_URL}/scenario', { method: 'PUT', body: '${name}' }).then(({ ok }) => ok || process.exit(1))`
  await machine.sh(`/usr/lib/kyc-tokend/node -e "${script}"`)
}

/** The stand-in may tell a request a moment after it was answered. */
async function expectRequests(count: number): Promise<void> {
  await expectUntil(`${count} requests`, async () => (await requests()) >= count)
  expect(await requests()).toBe(count)
}

/** How often the service was asked for a token, as far as the stand-in has told. */
async function requests(): Promise<number> {
  return (await journal('stand-in')).split('POST /token').length - 1
}

async function starts(): Promise<number> {
  return (await journal('kyc-tokend')).split('Starting kyc-tokend').length - 1
}

/** Resolves with a unit's journal once the text is in it: what was written before may be read there only a moment later. */
async function expectJournal(unit: string, text: string): Promise<string> {
  return expectUntil(`${text} in the journal of ${unit}`, async () => {
    const found = await journal(unit)
    return found.includes(text) && found
  })
}

async function journal(unit: string): Promise<string> {
  await machine.sh('journalctl --sync')
  return machine.sh(`journalctl -u ${unit} -o cat`)
}

async function show(property: string): Promise<string> {
  return (await machine.sh(`systemctl show -p ${property} --value kyc-tokend`)).trim()
}

async function modesOf(...files: string[]): Promise<string[]> {
  return (await machine.sh(`stat -c '%a %U:%G' ${files.join(' ')}`)).trim().split('\n')
}

async function exposureOf(unit: string): Promise<number> {
  const output = await machine.sh(`systemd-analyze security --offline=yes ${unit}`)
  return Number(/Overall exposure level.*: ([\d.]+)/.exec(output)?.[1])
}
