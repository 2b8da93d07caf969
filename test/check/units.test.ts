// `check` and `setup` on a host with systemd.
import { existsSync, readdirSync, readFileSync, statSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'
import { describe, expect, it, onTestFinished } from 'vitest'
import { daemonWith } from '../support/client-world.ts'
import { hourToken } from '../support/daemon-world.ts'
import { tokenFields } from '../support/scripted-daemon.ts'
import { accountNotFound, granting, startService } from '../support/service.ts'
import { isWithoutHost, onHost, type Properties } from '../support/systemd-host.ts'
import { tempDirectory } from '../support/temp-directory.ts'

const credentials = { apiKey: 'key-1', apiSecret: 'secret-1' }
const running = { ActiveState: 'active', UnitFileState: 'enabled' }
const stopped = { ActiveState: 'inactive', UnitFileState: 'disabled', Result: 'success' }

describe.skipIf(isWithoutHost)('check on a host with systemd', () => {
  it('finds nothing good where systemd does not say whether there is a unit', async () => {
    expect(await onHost(['check'], { failing: 'show' })).toMatchObject({
      status: 69,
      stdout: '',
      stderr: 'systemd does not say whether kyc-tokend.service is installed (It said no.): run this again.\n',
    })
  })

  it('shows why the service does not run in the words of systemd, starts nothing, and leaves nothing', async () => {
    const words =
      '     Active: failed (Result: exit-code)\n    Process: 7 ExecStart=x (code=exited, status=203/EXEC)\n'
    const unit = { ActiveState: 'failed', Result: 'exit-code', Group: 'no-such-group' }
    const config = { baseUrl: 'http://127.0.0.1:9', credentials }
    const { stdout, status, calls } = await onHost(['check'], { unit, words, config, hasUser: true })
    expect(stdout).toMatch(/^ok +configuration +\/etc\/kyc-tokend\/kyc-tokend\.config\.json is valid$/m)
    expect(stdout).toMatch(
      /^FAULT +unit +.* Active: failed .*; Process: 7 .*203\/EXEC\).*`sudo journalctl -u kyc-tokend/m,
    )
    expect(stdout).toMatch(/^FAULT +users +there is no user or group no-such-group;/m)
    expect(stdout).toMatch(/^warning +host +the clock says .* not synchronised/m)
    expect(calls.filter((call) => !call.startsWith('status'))).toEqual([])
    expect(status).toBe(78)
  })

  it('asks as a member of the group, and not a service that does not run', async () => {
    const daemon = await daemonWith(({ answer }) => answer('fault', { code: 'denied', message: 'no' }))
    const config = { baseUrl: 'http://127.0.0.1:9', credentials, http: false }
    const units = { 'kyc-tokend.socket': { ...running, SocketGroup: 'kyc-token', User: '', Group: '' } }
    const found = async (unit: Properties): Promise<string> =>
      (
        await onHost(['check'], {
          unit: { ...unit, Group: 'kyc-token' },
          units,
          config,
          hasUser: true,
          socket: daemon.path,
        })
      ).stdout
    await found(stopped)
    expect(daemon.asked).toEqual([])
    // The directory of the scripted daemon is closed to others.
    const shown = await found(running)
    expect(shown).not.toContain('FAULT    users')
    expect(shown).toMatch(
      /^FAULT +sockets +a member of kyc-token gets no answer at \/run\/kyc-tokend\/ipc\.sock \(EACCES\).*systemctl start kyc-tokend`$/m,
    )
  })

  it('a command without a daemon shows the words of systemd, and how to see more', async () => {
    const words = '   Active: failed (Result: oom-kill)\n'
    const { stderr, status } = await onHost(['token'], { unit: { ActiveState: 'failed' }, words })
    expect(stderr).toMatch(
      /^No kyc-tokend .*kyc-tokend\.service: Active: failed \(Result: oom-kill\)\. More: `sudo kyc-tokend check`\.$/m,
    )
    expect(status).toBe(69)
    const absent = await onHost(['token'], { unit: { LoadState: 'not-found' } })
    expect(absent.stderr).toMatch(/^No kyc-tokend .*start it with `sudo systemctl start kyc-tokend`/)
  })

  it('tells a user who may not read the configuration to use sudo', async () => {
    const { status, stdout } = await onHost(['check'], { unit: {}, hasUser: true, uid: 65_533 })
    expect(stdout).toMatch(/^FAULT +configuration .* may not be read by the user 65533: .*use sudo/m)
    expect(status).toBe(78)
  })
})

describe.skipIf(isWithoutHost)('setup by root', () => {
  /** `reload`: what the daemon answers to that; undefined: it is not to be asked. */
  async function world(reload?: object) {
    const service = await startService({
      answer: ({ body }) => (body.includes('wrong') ? accountNotFound : granting(hourToken())),
    })
    onTestFinished(() => service.stop())
    const daemon = await daemonWith(({ type, answer }) => {
      if (type === 'reload.request')
        answer('reload.result', { problems: [], needsRestart: [], pair: null, ...reload })
      else answer('token.result', tokenFields('token-1'))
    })
    const directory = await tempDirectory()
    const at = join(directory, 'host/etc/kyc-tokend')
    const setUp = async (unit: Properties, apiKey: string, ...words: string[]) => {
      const document = { baseUrl: service.url, credentials: { apiKey, apiSecret: 's-1' } }
      writeFileSync(join(directory, 'all.json'), JSON.stringify(document))
      const host = {
        unit,
        directory: join(directory, 'host'),
        hasUser: true,
        config: null,
        socket: daemon.path,
      }
      return onHost(['setup', '--from', join(directory, 'all.json'), ...words], host)
    }
    return { daemon, at, setUp, asked: () => daemon.asked.map(({ type }) => type) }
  }

  it('enables and starts the unit, has a daemon that runs read other files, and says what it holds', async () => {
    const { at, setUp, asked } = await world({ outcome: 'ok', pair: 'in-use' })
    const first = await setUp(stopped, 'k-1')
    const enable = 'enable kyc-tokend.service'
    const start = 'restart --no-block kyc-tokend.service'
    expect(first).toMatchObject({ status: 0, stderr: '', calls: [enable, start] })
    expect(first.stdout).toMatch(/^ok +service +gave a token/m)
    expect(first.stdout).toMatch(/^kyc-tokend runs and holds a token, good for \d/m)
    const stats = statSync(join(at, 'api-secret'))
    expect([stats.mode & 0o777, stats.uid, stats.gid]).toEqual([0o640, 0, 4243])
    const config = readFileSync(join(at, 'kyc-tokend.config.json'), 'utf8')
    expect(JSON.parse(config)).toMatchObject({ tokenFiles: [{ path: 'token', mode: '0640' }] })

    const again = await setUp(running, 'k-2', '--force')
    expect(again).toMatchObject({ status: 0, stderr: '', calls: [enable] })
    expect(asked()).toContain('reload.request')
    expect(readFileSync(join(at, 'api-key'), 'utf8')).toBe('k-2\n')
    expect(readdirSync(at).toSorted()).toEqual(['api-key', 'api-secret', 'kyc-tokend.config.json'])
  })

  it('changes nothing that the service refuses, and asks no daemon then', async () => {
    const { at, setUp, asked } = await world()
    const refused = await setUp(running, 'wrong')
    expect(refused).toMatchObject({ status: 77, stderr: '', calls: [] })
    expect(refused.stdout).toMatch(/^Nothing was changed, because the service refuses key and secret/m)
    expect(readdirSync(at)).toEqual([])
    expect(asked()).toEqual([])
    expect((await setUp(stopped, 'wrong', '--unverified')).calls).toHaveLength(2)
    expect(readFileSync(join(at, 'api-key'), 'utf8')).toBe('wrong\n')
  })

  it.each([
    [77, { outcome: 'failed', pair: 'refused', problems: ['It was refused.'] }],
    [75, { outcome: 'failed', pair: 'tried', problems: ['It was not answered.'] }],
    [78, { outcome: 'faulty', problems: ['It has a fault.'] }],
  ])('ends with %i where the daemon that runs does not use the files, which stay', async (status, reload) => {
    const { at, setUp } = await world(reload)
    expect(await setUp(running, 'k-1')).toMatchObject({
      status,
      stderr: `kyc-tokend does not use the new files: ${reload.problems[0]}\n`,
    })
    expect(existsSync(join(at, 'kyc-tokend.config.json'))).toBe(true)
  })
})
