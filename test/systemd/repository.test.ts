import { execFileSync, spawnSync } from 'node:child_process'
import { chmodSync, cpSync, mkdirSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs'
import { tmpdir } from 'node:os'
import path from 'node:path'
import { expect, it } from 'vitest'
import { parse } from 'yaml'
import { block, pages } from '../manual/manual.ts'
import { CONFIG, describeInstallation } from '../support/installation.ts'
import { lacks } from '../support/lacks.ts'
import { expectUntil } from '../support/until.ts'

// A repository for apt, made and used as the manual says.

const URL_IN_MANUAL = 'https://packages.example.com'
const URL_OF_TEST = 'http://127.0.0.1:8100'
const WEB_SERVER = 'python3 -m http.server --bind 127.0.0.1'
const EXAMPLES = path.resolve(import.meta.dirname, '../../systemd/examples')
/** Prints what a second run must leave: files, process, reloads. */
const STATE = `stat -c '%i %Y %a %U:%G %n' /etc/kyc-tokend/*
  systemctl show -p MainPID -p UnitFileState kyc-tokend
  journalctl --sync; journalctl -u kyc-tokend -o cat | grep -c Reload || true`

interface UserData {
  readonly write_files: readonly { path: string; permissions: string; content: string }[]
  readonly runcmd: readonly (readonly string[])[]
}

const SCRIPT = path.resolve(import.meta.dirname, '../../systemd/build-repository.ts')

/** The commands of a block of the manual; root needs no sudo, and apt gets its answer. */
function commandsOf(name: string): string {
  return block(name)
    .code.replaceAll('sudo ', '')
    .replaceAll(URL_IN_MANUAL, URL_OF_TEST)
    .replaceAll('apt-get install', 'apt-get install --yes')
}

/** The settings that an example has, with the address and the credentials of the stand-in. */
function forTheStandIn(text: string): string {
  return text
    .replace('https://api.example.com', 'http://127.0.0.1:8099')
    .replace('the key', 'sandbox-key')
    .replace('the secret', 'sandbox-secret')
}

describeInstallation(
  'the repository for apt',
  { versions: ['9.0.0', '9.0.1'], isInstalled: false },
  (installation) => {
    const { attempt, show, sh } = installation

    /** Builds a repository of one version, as the manual says, where the machine's web server finds it. */
    function publish(version: string, work: string): void {
      const packages = path.join(work, 'packages')
      rmSync(packages, { recursive: true, force: true })
      mkdirSync(packages)
      const file = `kyc-tokend_${version}_amd64.deb`
      cpSync(installation.machine.path(`/root/${file}`), path.join(packages, file))
      const out = path.join(work, 'repository')
      execFileSync(process.execPath, [
        SCRIPT,
        '--key',
        path.join(work, 'signing-key.asc'),
        '--packages',
        packages,
        '--out',
        out,
      ])
      rmSync(installation.machine.path('/srv/repository'), { recursive: true, force: true })
      cpSync(out, installation.machine.path('/srv/repository'), { recursive: true })
    }

    function generateKey(work: string): void {
      const home = path.join(work, 'gnupg')
      mkdirSync(home)
      chmodSync(home, 0o700)
      const [generate, exportKey] = block('make-repository').code.split('\n')
      const env = { ...process.env, GNUPGHOME: home }
      for (const command of [generate, exportKey])
        execFileSync('sh', ['-euc', command!], { cwd: work, env, stdio: 'ignore' })
      spawnSync('gpgconf', ['--kill', 'all'], { env })
    }

    let work: string

    it('is made of the packages, signed, and found by apt', { timeout: 120_000 }, async () => {
      work = mkdtempSync(path.join(tmpdir(), 'kyc-repo-'))
      generateKey(work)
      publish('9.0.0', work)
      expect(readFileSync(path.join(work, 'repository/dists/stable/InRelease'), 'utf8')).toContain(
        'BEGIN PGP SIGNED',
      )
      // There is no network in the machine.
      await sh('rm -f /etc/apt/sources.list /etc/apt/sources.list.d/*; mkdir -p /srv/repository')
      await sh(`systemd-run --unit=packages ${WEB_SERVER} --directory /srv/repository 8100`)
      await expectUntil('the web server', async () => (await attempt(`curl -s ${URL_OF_TEST}`)).status === 0)
      await sh(commandsOf('use-repository'))
      expect(await sh("dpkg-query -W -f='${Version}' kyc-tokend")).toBe('9.0.0')
    })

    it('brings a new version, to which the running daemon changes', { timeout: 120_000 }, async () => {
      await installation.startStandIn()
      await installation.configure({
        baseUrl: 'http://127.0.0.1:8099',
        credentials: { apiKey: 'sandbox-key', apiSecret: 'sandbox-secret' },
      })
      await sh('systemctl enable --now kyc-tokend')
      const before = await show('MainPID')
      publish('9.0.1', work)
      await sh(commandsOf('upgrade'))
      expect(await sh("dpkg-query -W -f='${Version}' kyc-tokend")).toBe('9.0.1')
      await installation.restarted(before)
      await installation.expectJournal('kyc-tokend', 'event=started')
    })

    it('serves the playbook, which changes nothing when it is run again', { timeout: 400_000 }, async () => {
      await sh('dpkg --purge kyc-tokend; rm -rf /etc/apt/keyrings /etc/apt/sources.list.d/*; useradd billing')
      const variables = { kyc_repository: URL_OF_TEST, kyc_users: ['billing'], kyc_api_key: 'sandbox-key' }
      const playbook = readFileSync(path.join(EXAMPLES, 'playbook.yaml'), 'utf8')
      await sh('cd /root; cat >playbook.yaml; echo "localhost ansible_connection=local" >hosts', {
        input: playbook.replace('https://api.example.com', 'http://127.0.0.1:8099'),
      })
      const play = async (secret: string): Promise<string> => {
        await sh('umask 077; cat >/root/vault.json', {
          input: JSON.stringify({ ...variables, kyc_api_secret: secret }),
        })
        const command = `cd /root; HOME=/root ${block('ansible').code} --extra-vars @vault.json`
        return (await installation.run(['sh', '-euc', command], { timeoutMs: 300_000 })).stdout
      }
      const recap = (said: string): string | undefined => /changed=\d+ .*failed=\d+/.exec(said)?.[0]
      expect(recap(await play('sandbox-secret'))).toMatch(/changed=[1-9]\d* .*failed=0/)
      await sh(commandsOf('unattended-check'))
      expect(await sh('kyc-tokend token', { as: 'billing' })).toMatch(/^ey/)
      const before = await sh(STATE)
      expect(recap(await play('sandbox-secret'))).toMatch(/changed=0 .*failed=0/)
      expect(await sh(STATE)).toBe(before)
      expect(await show('NRestarts')).toBe('0')

      // The second host is this one, too; the rollout does not come to it.
      await sh('echo "second ansible_connection=local" >>/root/hosts')
      const refused = await play('another-secret')
      expect(recap(refused)).toMatch(/failed=1/)
      expect(refused).toContain('account-not-found')
      expect(refused).not.toMatch(/another-secret|\[second\]/)
      await sh('sed -i /second/d /root/hosts')
      // But for the stand-in's own words, which name its pair.
      const journal = await sh("journalctl --no-pager | grep -v ' kyc-tokend\\['")
      expect(journal).toContain('Invoked with')
      expect(journal).not.toMatch(/another-secret|sandbox-secret|sandbox-key/)
      // The former pair had stayed.
      expect(await sh(STATE)).toBe(before)
      expect(await sh('kyc-tokend token', { as: 'billing' })).toMatch(/^ey/)
    })

    it('is set up by the commands of the user data, which change nothing the second time', async () => {
      await sh(`systemctl stop 'kyc-tokend*'; rm -r /etc/kyc-tokend/* /var/lib/kyc-tokend/*`)
      const { write_files: files, runcmd: commands } = parse(
        readFileSync(path.join(EXAMPLES, 'cloud-init.yaml'), 'utf8'),
      ) as UserData
      for (const { path: file, permissions, content } of files)
        await sh(`umask 077; cat >${file}; chmod ${permissions} ${file}`, {
          input: forTheStandIn(content),
        })
      const runAll = async (): Promise<string> => {
        let said = ''
        for (const command of commands) said += await sh(command.join(' '))
        return said
      }
      expect(await runAll()).toMatch(/^Started kyc-tokend$/m)
      expect(await sh('kyc-tokend token')).toMatch(/^ey/)
      const before = await sh(STATE)
      expect(await runAll()).toMatch(/^Nothing was changed$/m)
      expect(await sh(STATE)).toBe(before)
    })

    it('is set up from standard input, also after a run that ended before its reload', async () => {
      const page = pages().find((candidate) => candidate.path.endsWith('/install.md'))
      await sh('cat >/root/kyc.json', { input: forTheStandIn(/```json\n([^]*?)```/.exec(page!.text)![1]!) })
      const setup = `cd /root; ${commandsOf('unattended-setup')}`
      expect(await sh(setup)).toMatch(/^Reloaded kyc-tokend$/m)
      expect(JSON.parse(await sh(`cat ${CONFIG}`))).toMatchObject({
        alerts: { contact: expect.stringContaining('the payments team') },
      })
      expect(await sh(setup)).toMatch(/^Nothing was changed$/m)
      // As if the reload had not come.
      await sh(`sed -i 's/"the payments/"the other/' ${CONFIG} /root/kyc.json`)
      await expectUntil(
        'a change that is noticed',
        async () => (await sh('kyc-tokend status --json')).includes('"state":"changed"'),
        { withinMs: 45_000 },
      )
      expect(await sh(setup)).toMatch(/^Reloaded kyc-tokend$/m)
      expect(await sh(setup)).toMatch(/^Nothing was changed$/m)
    })

    it('is refused by apt when another key has signed it', { timeout: 120_000 }, async () => {
      const other = mkdtempSync(path.join(tmpdir(), 'kyc-repo-'))
      generateKey(other)
      publish('9.0.0', other)
      writeFileSync(installation.machine.path('/srv/repository/kyc-tokend.gpg'), '')
      const { stderr } = await attempt('apt-get update')
      expect(stderr).toMatch(/NO_PUBKEY|not signed/)
      for (const directory of [work, other]) rmSync(directory, { recursive: true, force: true })
    })

    it.skipIf(lacks('cloud-init'))('has user data that cloud-init accepts', { timeout: 60_000 }, () => {
      const file = path.join(EXAMPLES, 'cloud-init.yaml')
      const { status, stdout, stderr } = spawnSync('cloud-init', ['schema', '--config-file', file], {
        encoding: 'utf8',
      })
      expect({ status, said: stdout + stderr }).toEqual({
        status: 0,
        said: expect.stringContaining('Valid'),
      })
    })

    it('needs a key, and says so', () => {
      const { status, stderr } = spawnSync(process.execPath, [SCRIPT], { encoding: 'utf8' })
      expect(status).not.toBe(0)
      expect(stderr).toContain('npm run repository -- --key FILE')
    })
  },
)
