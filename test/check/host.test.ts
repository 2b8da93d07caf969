// The commands on a host with systemd and a daemon of the system, in a mount namespace: its /run and /etc, and another `systemctl`.
import { spawn } from 'node:child_process'
import { once } from 'node:events'
import {
  chmodSync,
  chownSync,
  existsSync,
  mkdirSync,
  readFileSync,
  readdirSync,
  rmSync,
  statSync,
  symlinkSync,
  writeFileSync,
} from 'node:fs'
import { join } from 'node:path'
import { text } from 'node:stream/consumers'
import { describe, expect, it, onTestFinished } from 'vitest'
import { setupFiles } from '../../src/setup/setup-files.ts'
import { daemonWith } from '../support/client-world.ts'
import { createAuthority } from '../support/certificates.ts'
import { commandWorld, hourToken } from '../support/daemon-world.ts'
import { PROGRAM } from '../support/daemon.ts'
import { letWrite } from '../support/access-list.ts'
import { lacks } from '../support/lacks.ts'
import type { Ended } from '../support/run-cli.ts'
import { accountInactive, accountNotFound, granting, startService } from '../support/service.ts'
import type { StatusResult } from '../../src/protocol.ts'
import { canMount } from '../support/small-disk.ts'
import { tempDirectory } from '../support/temp-directory.ts'

/** As the user kyc-tokend, if there is one. */
const AS_DAEMON =
  '$(grep -q ^kyc-tokend: /etc/passwd && echo setpriv --reuid=4242 --regid=4243 --clear-groups)'

/** Prints the properties that are asked for, of the unit that is the last word; other calls it writes down, or fails if shown to. */
const SYSTEMCTL = `#!/bin/sh
cd "$(dirname "$0")/units" || exit
case "$*" in
cat*) printf '[Service]\nUser=kyc-tokend\n'; exit ;;
reset-failed*) exit ;;
"start --wait"*)
  # As systemd runs the copy of the unit in which check examines the host.
  copy=/run/systemd/system/$3
  value() { grep "^$1=." "$copy" | tail -n 1 | cut -d = -f 2-; }
  output=$(value StandardOutput)
  value StandardInputData | base64 -d | env $(value Environment) RUNTIME_DIRECTORY=/run/kyc-tokend \
    ${AS_DAEMON} sh -c "$(value ExecStart)" >"\${output#file:}"
  exit ;;
esac
if [ "$1" = show ]; then : >../shown; else echo "$*" >>../calls; fi
if [ -e "$1" ]; then cat "$1" >&2; exit 1; fi
for unit; do :; done
for word; do grep "^$word=" "$unit"; done 2>/dev/null
# Of a unit that changes: what it is from then on.
if [ "$1" = show ] && [ -e "$unit.next" ]; then mv "$unit.next" "$unit"; fi
exit 0
`
/** The clock is not synchronised. */
const TIMEDATECTL = `#!/bin/sh
test "$*" = 'show --property=NTPSynchronized --value' && echo no
`

type Properties = Readonly<Record<string, string>>

interface Host {
  /** Properties of loaded units by name; `unit` are those of the daemon's. */
  readonly units?: Readonly<Record<string, Properties>>
  readonly unit?: Properties
  /** Sockets of the daemons of the system and of its accounts. */
  readonly socket?: string
  readonly accounts?: Readonly<Record<string, string>>
  /** Null: there is none. */
  readonly config?: object | null
  /** That of an earlier call, with the files that it left. */
  readonly directory?: string
  /** There is the user kyc-tokend. */
  readonly hasUser?: boolean
  /** The command of systemctl that fails. */
  readonly failing?: string
  /** The name of a secret file that only root reads; then all read the configuration. */
  readonly secretFile?: string
  /** Its mode. */
  readonly alertCommand?: number
  readonly uid?: number
  /** Beside PATH and HOME. */
  readonly env?: NodeJS.ProcessEnv
}

/** Runs a command on such a host. */
async function onHost(words: readonly string[], host: Host): Promise<Ended & { calls: string[] }> {
  const {
    unit,
    units,
    socket,
    accounts = {},
    config = {},
    secretFile,
    alertCommand,
    hasUser = false,
    failing,
    directory = await tempDirectory(),
    uid,
  } = host
  const under = (...path: string[]): string => join(directory, ...path)
  for (const made of ['', 'run/systemd/system', 'run/kyc-tokend', 'etc/kyc-tokend', 'sbin/units', 'state'])
    mkdirSync(under(made), { recursive: true })
  chmodSync(directory, 0o755)
  rmSync(under('run/kyc-tokend/ipc.sock'), { force: true })
  if (socket !== undefined) symlinkSync(socket, under('run/kyc-tokend/ipc.sock'))
  for (const [name, path] of Object.entries(accounts)) {
    mkdirSync(under('run/kyc-tokend/accounts', name), { recursive: true })
    symlinkSync(path, under('run/kyc-tokend/accounts', name, 'ipc.sock'))
  }
  const mode = secretFile === undefined ? 0o640 : 0o644
  if (config !== null)
    writeFileSync(under('etc/kyc-tokend/kyc-tokend.config.json'), JSON.stringify(config), { mode })
  if (hasUser) {
    writeFileSync(under('etc/passwd'), 'root:x:0:0::/:/bin/sh\nkyc-tokend:x:4242:4243::/:/bin/false\n')
    writeFileSync(under('etc/group'), 'root:x:0:\nkyc-tokend:x:4243:\nkyc-token:x:4244:\n')
    chownSync(under('run/kyc-tokend'), 0, 4244)
    chmodSync(under('run/kyc-tokend'), 0o3751)
    letWrite(under('run/kyc-tokend'), 4242)
    if (config !== null) chownSync(under('etc/kyc-tokend/kyc-tokend.config.json'), 0, 4243)
  }
  if (secretFile !== undefined)
    writeFileSync(under('etc/kyc-tokend', secretFile), 'secret-1', { mode: 0o600 })
  writeFileSync(under('etc/hosts'), '127.0.0.1 localhost\n')
  if (alertCommand !== undefined)
    writeFileSync(under('etc/kyc-tokend/alert-command'), '#!/bin/sh\n', { mode: alertCommand })
  rmSync(under('sbin/calls'), { force: true })
  if (failing !== undefined) writeFileSync(under('sbin/units', failing), 'It said no.\nAnd more.\n')
  writeFileSync(under('sbin/systemctl'), SYSTEMCTL, { mode: 0o755 })
  writeFileSync(under('sbin/timedatectl'), TIMEDATECTL, { mode: 0o755 })
  for (const [name, given] of Object.entries({ ...units, ...(unit && { 'kyc-tokend.service': unit }) })) {
    const lines = Object.entries({ LoadState: 'loaded', ...given }).map(([key, value]) => `${key}=${value}\n`)
    writeFileSync(under('sbin/units', name), lines.join(''))
  }
  const inside =
    'for name in run etc; do mount --bind "$0/$name" "/$name"; done; mount --bind "$0/sbin" /usr/sbin; ' +
    'mount -t tmpfs tmpfs /var/lib; mkdir -m 0700 /var/lib/kyc-tokend; chown 4242:4243 /var/lib/kyc-tokend; exec "$@"'
  const as = uid === undefined ? [] : ['setpriv', `--reuid=${uid}`, `--regid=${uid}`, '--clear-groups']
  const child = spawn('unshare', ['--mount', 'sh', '-euc', inside, directory, ...as, ...PROGRAM, ...words], {
    env: { PATH: process.env['PATH'], HOME: '/', ...host.env },
  })
  const [stdout, stderr, [status]] = await Promise.all([
    text(child.stdout),
    text(child.stderr),
    once(child, 'close') as Promise<[number | null]>,
  ])
  const calls = existsSync(under('sbin/calls'))
    ? readFileSync(under('sbin/calls'), 'utf8').split('\n').slice(0, -1)
    : []
  return { status, signal: null, stdout, stderr, calls }
}

/** Writes the document of `setup` with this key. */
function documentIn(directory: string, baseUrl: string): (apiKey: string) => void {
  return (apiKey) => {
    const document = { baseUrl, credentials: { apiKey, apiSecret: 's-1' } }
    writeFileSync(join(directory, 'all.json'), JSON.stringify(document))
  }
}

const credentials = { apiKey: 'key-1', apiSecret: 'secret-1' }
const fileCredentials = { apiKey: { file: 'api-key' }, apiSecret: 'secret-1' }

describe.skipIf(!canMount || lacks('unshare') || lacks('python3'))('on a host with systemd', () => {
  it('`check` asks a daemon that runs for the other pair in the files, and names a restart only behind it', async () => {
    const problem = '/secret holds a pair that the service refused'
    const configuration = { state: 'faulty', problem, pair: 'refused' as string | undefined }
    const running = { configFile: '/etc/kyc-tokend/kyc-tokend.config.json', configuration }
    const daemon = await daemonWith(({ answer }) => answer('status.result', { daemon: running }))
    const found = async (ActiveState: string, ...words: string[]): Promise<(string | undefined)[]> => {
      const { stdout } = await onHost(['check', ...words], {
        units: {
          'kyc-tokend.socket': { ActiveState: 'active', Listen: '/run/kyc-tokend/ipc.sock (Stream)' },
        },
        unit: { ActiveState, NeedDaemonReload: 'yes' },
        config: { baseUrl: 'http://127.0.0.1:9', credentials },
        socket: daemon.path,
      })
      const restart = /^warning +unit +(.*) changed on disk/m.exec(stdout)?.[1]
      return [/^(.*?) +secrets .*$/m.exec(stdout)?.[0].replaceAll(/ +/g, ' '), restart]
    }
    const service = 'kyc-tokend.service'
    // It starts none.
    expect(await found('inactive')).toEqual([undefined, service])
    expect(await found('active', '--config-only')).toEqual([undefined, undefined])
    expect(daemon.asked).toEqual([])
    const behind = 'Correct these files first, because a restart would use the other pair in them; then:'
    expect(await found('active')).toEqual([`FAULT secrets ${problem}`, `${behind} ${service}`])
    configuration.pair = 'tried'
    expect(await found('active')).toEqual([`warning secrets ${problem}`, `${behind} ${service}`])
    configuration.pair = undefined
    expect(await found('active')).toEqual([undefined, service])
  })

  it('`check` finds nothing good where systemd does not say whether there is a unit', async () => {
    expect(await onHost(['check'], { failing: 'show' })).toMatchObject({
      status: 69,
      stdout: '',
      stderr: 'systemd does not say whether kyc-tokend.service is installed (It said no.): run this again.\n',
    })
  })

  it('`check` waits until a start that is under way has ended, because none shows how the last one failed', async () => {
    const starting = { ActiveState: 'activating', Result: 'success', ExecMainStatus: '0' }
    const ended = { ...starting, Result: 'exit-code', ExecMainStatus: '203' }
    const { stdout, status } = await onHost(['check'], {
      unit: starting,
      units: { 'kyc-tokend.service.next': ended },
      config: { baseUrl: 'http://127.0.0.1:9', credentials },
      hasUser: true,
    })
    expect(stdout).toMatch(/^FAULT +unit +kyc-tokend\.service cannot start \(203\/EXEC/m)
    expect(status).toBe(78)
  })

  it('`check --live` has no daemon read a pair that the service refuses', async () => {
    const service = await startService({ answer: accountNotFound })
    onTestFinished(() => service.stop())
    const config = { baseUrl: service.url, credentials }
    const { stdout } = await onHost(['check', '--live'], { unit: { ActiveState: 'inactive' }, config })
    const line = /^FAILED +service +.*$/m.exec(stdout)?.[0]
    expect(line).toMatch(/correct what differs.*then ask again: `sudo kyc-tokend refresh`\./)
    expect(line).not.toMatch(/systemctl|reload|restart/)
  })

  it('`setup` restores what stood before, byte for byte, where the daemon gets no token with it', async () => {
    const { directory, service } = await commandWorld()
    const reloads: unknown[] = []
    const daemon = await daemonWith(({ type, answer }) => {
      if (type !== 'reload.request')
        return answer('status.result', { daemon: { configuration: { state: 'current' } } })
      const isFirst = reloads.push(type) === 1
      answer('reload.result', {
        outcome: isFirst ? 'failed' : 'ok',
        problems: isFirst ? ['It holds a pair that the service refused'] : [],
        needsRestart: [],
        pair: isFirst ? 'refused' : null,
      })
    })
    const write = documentIn(directory, service.url)
    const setUp = (ActiveState: string, words: string[] = []) =>
      onHost(['setup', '--from', join(directory, 'all.json'), ...words], {
        unit: { ActiveState, UnitFileState: 'enabled' },
        directory: join(directory, 'host'),
        hasUser: true,
        config: null,
        socket: daemon.path,
      })
    write('k-1')
    await setUp('inactive')
    const at = join(directory, 'host/etc/kyc-tokend')
    const before = readFileSync(join(at, 'api-key'))
    const { ino } = statSync(join(at, 'api-key'))
    write('k-2')
    const authority = join(directory, 'company.pem')
    writeFileSync(authority, createAuthority().cert)
    const { status, stderr } = await setUp('active', ['--force', '--ca-file', authority])
    expect({ status, stderr }).toEqual({
      status: 77,
      stderr: 'The service refuses the new pair: correct it. What stood before was restored.\n',
    })
    expect(reloads).toHaveLength(2)
    expect([readFileSync(join(at, 'api-key')), statSync(join(at, 'api-key')).ino]).toEqual([before, ino])
    expect(readdirSync(at).toSorted()).toEqual(['api-key', 'api-secret', 'kyc-tokend.config.json'])
  })

  it('`setup` names a proxy that it has and the daemon has not, where the service was not reached', async () => {
    const directory = await tempDirectory()
    const document = { baseUrl: 'https://127.0.0.1:9', credentials }
    writeFileSync(join(directory, 'all.json'), JSON.stringify(document))
    const setUp = (env: NodeJS.ProcessEnv, ...more: string[]) =>
      onHost(['setup', '--from', join(directory, 'all.json'), ...more], {
        unit: { ActiveState: 'inactive' },
        directory: join(directory, 'host'),
        hasUser: true,
        config: null,
        env,
      })
    const [named, HTTPS_PROXY] = ['HTTPS_PROXY is set here', 'http://me:hush-hush@127.0.0.1:9']
    const { status, stdout } = await setUp({ HTTPS_PROXY })
    expect(stdout).toContain(
      `${named} and not for the daemon: add --proxy to take it into the configuration\n`,
    )
    expect(stdout).not.toContain('hush-hush')
    expect(status).toBe(75)
    expect((await setUp({})).stdout).not.toContain(named)
    const proxied = await setUp({ HTTPS_PROXY }, '--proxy')
    expect(proxied.stdout).toContain('127.0.0.1:9 (the proxy of request.proxy) refused the connection')
    expect(proxied.stdout).not.toContain(named)
    expect(readdirSync(join(directory, 'host/etc/kyc-tokend'))).toEqual([])
  })

  it('removes the copies of the unit that a killed `check` or `setup` has left', async () => {
    const directory = await tempDirectory()
    mkdirSync(join(directory, 'run/systemd/system'), { recursive: true })
    const [gone, alive] = [99_999_999, 1]
    const names = (pid: number): string[] => [
      `run/systemd/system/kyc-tokend-check-${pid}.service`,
      `run/systemd/system/kyc-tokend-check-${pid}@.service`,
      `run/kyc-tokend-check-${pid}.json`,
    ]
    for (const name of [...names(gone), ...names(alive)]) writeFileSync(join(directory, name), '')
    const config = { baseUrl: 'http://127.0.0.1:9', credentials }
    const { calls } = await onHost(['check'], { unit: {}, directory, config })
    expect([...names(gone), ...names(alive)].filter((name) => existsSync(join(directory, name)))).toEqual(
      names(alive),
    )
    expect(calls.filter((call) => call.startsWith('stop ')).toSorted()).toEqual([
      `stop kyc-tokend-check-${gone}.service`,
      `stop kyc-tokend-check-${gone}@*.service`,
    ])
  })

  it('`setup` by root enables and starts the unit, has it read other files, and says what it holds', async () => {
    const { daemon, directory, service, cli } = await commandWorld({
      config: { credentials: { apiKey: 'key-1', apiSecret: { file: 'secret' } } },
      answer: ({ body }) => (body.includes('wrong') ? accountNotFound : granting(hourToken())),
      files: { secret: 'right' },
    })
    await cli(['token'])
    // A fault of the running daemon’s pair is no fault of the files that replace it.
    writeFileSync(join(directory, 'secret'), 'wrong')
    await cli(['refresh'])
    const write = documentIn(directory, service.url)
    write('k-1')
    const setUp = (unit: Properties, words: string[] = [], failing?: string) =>
      onHost(['setup', '--from', join(directory, 'all.json'), ...words], {
        unit,
        directory: join(directory, 'host'),
        hasUser: true,
        config: null,
        socket: daemon.ipcPath,
        ...(failing !== undefined && { failing }),
      })
    const after = (stdout: string): string[] =>
      stdout.split('\n').filter((line) => !/^(?:ok|warning) /.test(line))
    const holds =
      /^kyc-tokend runs and holds a token, good for (?:1 h|\d+ min).*\. Give it to programs: sudo usermod -aG kyc-token USER$/
    const wrote = (...names: string[]): string[] => names.map((name) => `Wrote /etc/kyc-tokend/${name}`)
    const restart = 'restart kyc-tokend.service'
    const waiting = 'Waiting up to 15 s for a token of kyc-tokend'

    const first = await setUp({ ActiveState: 'inactive', UnitFileState: 'disabled' })
    const enable = 'enable kyc-tokend.service'
    expect(first).toMatchObject({ status: 0, stderr: '', calls: [enable, restart] })
    // The socket is started next.
    expect(first.stdout).toMatch(/^warning +host +the clock/m)
    expect(first.stdout).not.toMatch(/ sockets /)
    expect(after(first.stdout)).toEqual([
      ...wrote('api-key', 'api-secret', 'kyc-tokend.config.json'),
      'Enabled kyc-tokend',
      waiting,
      'Started kyc-tokend',
      expect.stringMatching(holds),
      '',
    ])
    const stats = statSync(join(directory, 'host/etc/kyc-tokend/api-secret'))
    expect([stats.mode & 0o777, stats.uid, stats.gid]).toEqual([0o640, 0, 4243])
    const config = readFileSync(join(directory, 'host/etc/kyc-tokend/kyc-tokend.config.json'), 'utf8')
    expect(JSON.parse(config)).toMatchObject({ tokenFiles: [{ path: 'token', mode: '0640' }] })

    const running = { ActiveState: 'active', UnitFileState: 'enabled' }
    const again = await setUp(running)
    expect(again).toMatchObject({ status: 0, calls: [] })
    expect(after(again.stdout)).toEqual(['Nothing was changed', waiting, expect.stringMatching(holds), ''])

    write('k-2')
    service.answer(accountInactive)
    const unconfirmed = await setUp(running, ['--force', '--unverified'])
    expect(unconfirmed).toMatchObject({ status: 77, calls: ['restart kyc-tokend.service'] })
    expect(after(unconfirmed.stdout)).toEqual([
      expect.stringMatching(/^FAILED +service /),
      ...wrote('api-key'),
      'Restarted kyc-tokend',
      'Waiting up to 15 s for kyc-tokend',
      'kyc-tokend runs with a key and secret that the service has not confirmed: see `sudo kyc-tokend status`',
      '',
    ])

    const failed = await setUp({ ...running, ActiveState: 'activating' }, [], 'restart')
    expect(failed).toMatchObject({
      status: 69,
      stderr: `systemctl ${restart} failed (It said no.): see \`sudo journalctl -u kyc-tokend -n 20\`. The files stay.\n`,
    })
  })

  it('`setup` keeps the files that the service has confirmed, and names the restart, where the reload has no answer', async () => {
    const service = await startService({ answer: () => granting(hourToken()) })
    onTestFinished(() => service.stop())
    const daemon = await daemonWith(({ cut }) => cut())
    const directory = await tempDirectory()
    documentIn(directory, service.url)('k-1')
    const { status, stdout, stderr } = await onHost(['setup', '--from', join(directory, 'all.json')], {
      unit: { ActiveState: 'active', UnitFileState: 'enabled' },
      directory: join(directory, 'host'),
      hasUser: true,
      config: null,
      socket: daemon.path,
    })
    expect(stdout).toMatch(/^Waiting up to 60 s for kyc-tokend to take it over\n/m)
    expect(stderr).toMatch(
      / The files stay, and the service takes their pair; have it in use: `sudo systemctl restart kyc-tokend`\.\n$/,
    )
    expect(status).toBe(69)
    expect(existsSync(join(directory, 'host/etc/kyc-tokend/kyc-tokend.config.json'))).toBe(true)
    expect(daemon.asked.map(({ type }) => type)).toEqual(['reload.request'])
  })

  it.each([
    ['configuration', {}],
    [
      'secret',
      { secretFile: 'api-key', config: { baseUrl: 'http://127.0.0.1:9', credentials: fileCredentials } },
    ],
  ])('`check` advises a user who may not read the %s to use sudo, and nothing else', async (_, host) => {
    const all = { unit: {}, hasUser: true, ...host }
    const { status, stdout, stderr } = await onHost(['check', '--live'], { ...all, uid: 65_533 })
    expect({ status, stdout }).toEqual({ status: 77, stdout: '' })
    // The user of the daemon is the one who has to read it.
    const ofDaemon = await onHost(['check', '--config-only'], { ...all, uid: 4242 })
    expect(ofDaemon.stdout).toMatch(
      /^FAULT +configuration .* may not be read by the user kyc-tokend: `sudo chgrp/m,
    )
    expect(stderr).toBe(
      '/etc/kyc-tokend/kyc-tokend.config.json or a secret in it cannot be read by 65533: run `sudo kyc-tokend check`.\n',
    )
  })

  it('`check` shows a user who may read the configuration its faults', async () => {
    const config = { baseUrl: 'http://127.0.0.1:9', credentials: { apiKey: 'key-1', apiSecret: '' } }
    const host = { unit: {}, hasUser: true, uid: 65_533, secretFile: 'unused', config }
    const { status, stdout } = await onHost(['check', '--config-only'], host)
    expect(stdout).toMatch(/^FAULT +configuration .*credentials\.apiSecret/m)
    expect(status).toBe(78)
  })

  it('`run` does not advise a user to take the configuration of the system from its daemon', async () => {
    const config = '/etc/kyc-tokend/kyc-tokend.config.json'
    const { stderr } = await onHost(['run'], { uid: 65_533 })
    expect(stderr).toBe(
      `${config}: the configuration file may not be read by the user 65533: use sudo, and leave owner and mode of the file as they are\n`,
    )
  })

  it('`check` says that no alert reaches the alert command of a daemon that runs', async () => {
    const units = { 'kyc-tokend-alert.path': { ActiveState: 'inactive' } }
    const checked = async (ActiveState: string): Promise<string> =>
      (await onHost(['check'], { unit: { ActiveState }, units, alertCommand: 0o755 })).stdout
    expect(await checked('active')).toContain('kyc-tokend-alert.path is inactive, so that no alert reaches')
    expect(await checked('inactive')).not.toContain('kyc-tokend-alert.path')
  })

  it('`status` and `alert-test` say that no alert reaches the alert command', async () => {
    const { daemon, cli } = await commandWorld()
    await cli(['token'])
    const { pid } = (JSON.parse((await cli(['status', '--json'])).stdout) as StatusResult).daemon
    const units = { 'kyc-tokend-alert.path': { ActiveState: 'inactive' } }
    const host = { socket: daemon.ipcPath, unit: { MainPID: String(pid) }, units, alertCommand: 0o755 }
    const sentence =
      'kyc-tokend-alert.path is inactive, so that no alert reaches the alert command: `sudo systemctl enable --now'
    expect((await onHost(['status'], host)).stdout).toContain(sentence)
    const statusAfterRun = async (atSeconds: number, StatusText = ''): Promise<string> => {
      const ran = { Result: 'success', ExecMainExitTimestamp: `@${atSeconds}`, StatusText }
      const well = { 'kyc-tokend-alert.path': { ActiveState: 'active' }, 'kyc-tokend-alert.service': ran }
      return (await onHost(['status'], { ...host, units: well })).stdout
    }
    expect(await statusAfterRun(Math.floor(Date.now() / 1000) + 60)).toMatch(/alert command succeeded .*ago/)
    // As long as the command fails, its unit runs.
    expect(await statusAfterRun(1_700_000_000, 'exit status 3 at noon, \u001b[31mrun again')).toContain(
      String.raw`alert command failed, exit status 3 at noon, \u001b[31mrun again: see ` +
        '`sudo journalctl -u kyc-tokend-alert`',
    )
    // The unit ran when there was no command.
    expect(await statusAfterRun(1_700_000_000)).not.toContain('alert command')
    const rehearsal = await onHost(['alert-test'], host)
    expect(rehearsal.stdout).toMatch(/^A test alert is raised.* the log, alert\.json\.\n$/)
    expect(rehearsal.stderr).toContain(sentence)
    expect(rehearsal.status).toBe(78)
  })

  const stopped = { ActiveState: 'inactive', Result: 'success', UnitFileState: 'enabled' }
  const failed = { ...stopped, ActiveState: 'failed', Result: 'exit-code', ExecMainStatus: '78' }
  it.each<[string, Properties, string]>([
    ['stopped', stopped, 'is inactive: `sudo systemctl start kyc-tokend`'],
    ['disabled', { ...stopped, UnitFileState: 'disabled' }, 'is inactive: `sudo systemctl enable --now kyc'],
    ['starting', { ...stopped, ActiveState: 'activating' }, 'is starting'],
    [
      'masked',
      { ...stopped, LoadState: 'masked' },
      'is masked: `sudo systemctl unmask kyc-tokend.service && sudo systemctl enable --now kyc-tokend`',
    ],
    [
      'faulty',
      failed,
      'is failed (exit status 78): the configuration is faulty; correct that, then: `sudo kyc-tokend check && sudo systemctl restart kyc-tokend`',
    ],
    ['killed', { ...failed, Result: 'oom-kill' }, 'is failed (oom-kill): `sudo journalctl -u kyc-tokend'],
  ])('`token` says why a unit does not run that is %s, with the remedy', async (_, unit, sentence) => {
    const { stderr } = await onHost(['token'], { unit })
    expect(stderr).toContain(`kyc-tokend.service ${sentence}`)
  })

  it('`status` names the account in the remedy, and has nothing to say of a unit that runs or is not installed', async () => {
    const accounts = { eu: '/nowhere' }
    const config = { 'kyc-tokend@eu.service': failed }
    const { stderr } = await onHost(['status', '--account', 'eu'], { accounts, units: config })
    expect(stderr).toContain(
      `kyc-tokend@eu.service has no configuration: \`sudo kyc-tokend setup --account eu\`.`,
    )
    const start = 'kyc-tokend.service is inactive: `sudo systemctl start kyc-tokend`'
    expect((await onHost(['status'], { unit: stopped })).stderr).toContain(start)
    for (const unit of [{ ActiveState: 'active' }, { LoadState: 'not-found' }]) {
      const { status, stderr: said } = await onHost(['status'], { unit: { ...stopped, ...unit } })
      expect(said).not.toContain('kyc-tokend.service is')
      expect(status).toBe(69)
    }
  })

  it('`status` says that the socket was removed', async () => {
    const units = { 'kyc-tokend.socket': { ActiveState: 'active' } }
    expect((await onHost(['status'], { unit: stopped, units })).stderr).toMatch(
      /^No kyc-tokend .*: the socket of kyc-tokend\.socket was removed: `sudo systemd-tmpfiles --create kyc-tokend.conf && .*`/,
    )
    const socket = { ActiveState: 'failed', Result: 'exit-code', SocketGroup: 'not-there' }
    const failedSocket = { 'kyc-tokend.socket': socket }
    expect((await onHost(['status'], { unit: stopped, units: failedSocket })).stderr).toMatch(
      /^No kyc-tokend .*: the group not-there of kyc-tokend\.socket does not exist, so that nobody can connect \(216\/GROUP\)/,
    )
  })
})

it('root sets up the daemon of the system, anyone else one in the working directory', async () => {
  const directory = process.geteuid!() === 0 ? '/etc/kyc-tokend' : '/somewhere'
  expect((await setupFiles(undefined, '/somewhere')).contents.apiKey).toBe(join(directory, 'api-key'))
})
