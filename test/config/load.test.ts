import { chmodSync, chownSync, readdirSync, readFileSync, symlinkSync } from 'node:fs'
import { join } from 'node:path'
import { describe, expect, it, onTestFinished, vi } from 'vitest'

import type { Config } from '../../src/config/config.ts'
import { inspectConfig, loadConfig, loadPlan, type LoadOptions } from '../../src/config/load.ts'
import { createAuthority } from '../support/certificates.ts'
import { refusalOf, serviceEnv as env, smallConfig, useConfigFiles } from '../support/config-files.ts'

const isRoot = process.getuid!() === 0
const files = useConfigFiles()

const load = (configPath: string, more: Partial<LoadOptions> = {}): Promise<Config> =>
  loadConfig({ configPath, env, ...more })
/** All that is said of a configuration that is refused. */
const refusal = async (configPath: string, more: Partial<LoadOptions> = {}): Promise<string> =>
  (await refusalOf(load(configPath, more))).message
function link(target: string, name: string): string {
  const path = join(files.directory, name)
  symlinkSync(target, path)
  return path
}
const write = (settings: object = {}, mode = 0o600): string =>
  files.write('kyc-tokend.config.json', { ...smallConfig(), ...settings }, mode)

describe('a configuration that is good', () => {
  it('may be at its limits, and have a socket for all whose users are listed', async () => {
    const allow = { users: ['root'], groups: ['root'] }
    const settings = {
      retry: { initialDelay: '2m', maxDelay: '1m' },
      ipc: { path: `/${'x'.repeat(106)}`, maxConnections: 1_066, mode: '0666', allow },
    }
    expect((await load(write(settings))).warnings).toEqual([])
  })

  it('has the documented defaults', async () => {
    const config = await load(write())
    expect(config).toMatchObject({
      request: { timeoutMs: 15_000, connectTimeoutMs: 5_000, ca: null },
      tokenFiles: [{ path: '/run/kyc-tokend/token', format: 'raw', mode: 0o600, uid: null, gid: null }],
      ipc: { path: '/run/kyc-tokend/ipc.sock', mode: 0o600 },
      http: { path: '/run/kyc-tokend/http.sock', maxRequestsPerSecond: null },
      alerts: { remindAfterMs: [3_600_000, 21_600_000, 86_400_000], noTokenAfterMs: 600_000 },
      runtimeDirectory: '/run/kyc-tokend',
      stateDirectory: '/var/lib/kyc-tokend',
      warnings: [],
    })
    expect(config.credentials.apiKey!.reveal()).toBe('key-0815')
    expect(config.credentials.apiSecret!.reveal()).toBe('secret-1')
    expect(JSON.stringify(config)).not.toContain('secret-1')
  })

  it('resolves outputs against the runtime directory and inputs against its own', async () => {
    files.write('secret', 'from-file\n')
    const config = await load(
      write({
        credentials: { apiKey: 'k', apiSecret: { file: 'secret' } },
        runtimeDirectory: 'run',
        stateDirectory: '/srv/state',
        tokenFiles: [{ path: 'a/token' }, { path: '/srv/token', mode: '640', owner: 'root', group: '7' }],
        ipc: { path: 'x.sock', allow: { users: ['root', 5, '6'], groups: ['root'] } },
        http: false,
      }),
    )
    expect(config.credentials.apiSecret!.reveal()).toBe('from-file')
    expect(config.inputs).toEqual([join(files.directory, 'secret')])
    expect(config.runtimeDirectory).toBe(join(files.directory, 'run'))
    const raw = { format: 'raw', template: null }
    expect(config.tokenFiles).toEqual([
      { ...raw, path: join(files.directory, 'run/a/token'), mode: 0o600, uid: null, gid: null },
      { ...raw, path: '/srv/token', mode: 0o640, uid: 0, gid: 7 },
    ])
    expect(config.ipc.path).toBe(join(files.directory, 'run/x.sock'))
    expect(config.ipc.allow).toEqual({ uids: [0, 5, 6], gids: [0] })
    expect(config.http).toBeNull()
  })

  it('has a normalised base URL, and is closed again', async () => {
    const path = write({ baseUrl: 'https://API.example.com:443/v1//' })
    const before = readdirSync('/proc/self/fd').length
    for (let count = 0; count < 50; count += 1)
      expect((await load(path)).baseUrl).toBe('https://api.example.com/v1')
    expect(readdirSync('/proc/self/fd').length).toBeLessThan(before + 25)
  })

  it.each(['', '/home/x'])('may be YAML with a byte order mark, and leaves HOME %s', async (home) => {
    vi.stubEnv('HOME', home)
    onTestFinished(() => void vi.unstubAllEnvs())
    const yaml =
      '\uFEFFbaseUrl: https://a.example\ncredentials:\n  apiKey: k\n  apiSecret: s # yes\nlog: { level: debug }\n'
    const config = await load(files.write('kyc-tokend.config.yaml', yaml))
    expect(config.log.level).toBe('debug')
    expect((await load(files.write('c.yml', yaml))).credentials.apiSecret!.reveal()).toBe('s')
    expect(process.env['HOME']).toBe(home)
  })

  it('warns of what is allowed and unwise', async () => {
    const { warnings } = await load(
      write({ tokenFiles: [{ path: 't', mode: '0664' }], ipc: { mode: '0666' } }),
    )
    expect(warnings).toEqual([
      expect.stringMatching(/^tokenFiles\[0\]\.mode: lets every user of this host read the token/),
      expect.stringMatching(/^tokenFiles\[0\]\.mode: lets the group write the file, which is restored/),
      expect.stringMatching(/^ipc\.mode: lets every user of this host take the token/),
    ])
  })

  it('is the example, once the credentials are there', async () => {
    const example = readFileSync(new URL('../../kyc-tokend.config.example.json', import.meta.url), 'utf8')
    const path = files.write('kyc-tokend.config.json', example)
    expect(await refusal(path)).toMatch(/credentials\.apiKey: the file .*api-key is not there/)
    files.write('api-key', 'k\n')
    files.write('api-secret', 's\n')
    expect((await load(path)).credentials.apiKey!.reveal()).toBe('k')
    // Editors complete and check by the schema that it names, which the build writes.
    const { $schema } = JSON.parse(example) as { $schema: string }
    const { exports } = JSON.parse(readFileSync(new URL('../../package.json', import.meta.url), 'utf8')) as {
      exports: Record<string, unknown>
    }
    expect($schema).toBe(exports['./schema.json'])
  })
})

describe('where a configuration is found', () => {
  it('is what --config names, before $KYC_TOKEND_CONFIG', async () => {
    const one = files.write('one.json', { ...smallConfig(), log: { level: 'debug' } })
    const other = files.write('other.json', { ...smallConfig(), log: { level: 'error' } })
    const withVariable = { ...env, KYC_TOKEND_CONFIG: other }
    expect((await loadConfig({ configPath: one, env: withVariable })).log.level).toBe('debug')
    expect((await loadConfig({ env: withVariable })).log.level).toBe('error')
  })
  it('says what was looked for where there is none', async () => {
    expect(await refusal(join(files.directory, 'no.json'))).toMatch(
      /there is no configuration file .*no\.json: correct --config/,
    )
    expect(await refusal('/etc/kyc-tokend/accounts/nowhere.json')).toMatch(
      /nowhere\.json: `sudo kyc-tokend setup --account nowhere` makes it/,
    )
    const KYC_TOKEND_CONFIG = join(files.write('file', ''), 'c.json')
    expect((await refusalOf(loadConfig({ env: { ...env, KYC_TOKEND_CONFIG } }))).message).toMatch(
      /there is no configuration file .*file\/c\.json: correct \$KYC_TOKEND_CONFIG/,
    )
  })
})

describe('a file that cannot be a configuration', () => {
  it.each([
    ['a directory', () => files.directory, /is a directory: name the file in it/],
    ['an executable', () => files.write('c.json.js', 'process.exit(3)'), /must be named \*\.json, \*\.ya/],
    ['an empty file', () => files.write('c.json', ' \n'), /is empty: begin with kyc-tokend\.config\.example/],
    ['a file over 1 MiB', () => files.write('c.json', ' '.repeat(1024 * 1024 + 1)), /is larger than 1 MiB/],
    ['an odd path', () => files.write('a\u001b[2J/c.json', {}), /has a control character in its path: ren/],
    ['Latin-1', () => files.write('c.json', Buffer.from('"\u00e9"', 'latin1')), /is not valid UTF-8: save/],
    ['a device', () => '/dev/null', /is not a regular file/],
    ['a link in a circle', () => link('c.json', 'c.json'), /cannot be read \(ELOOP.*: repair it/],
    ['a name that is too long', () => `/${'x'.repeat(256)}.json`, /cannot be read \(ENAMETOOLONG.*repair it/],
    [
      'YAML with an alias',
      () => files.write('c.yaml', 'apiSecret: *HUSH\n'),
      /is not YAML at line 1, column/,
    ],
    [
      'YAML with a claim that holds itself',
      () =>
        files.write(
          'c.yaml',
          `${JSON.stringify(smallConfig()).slice(0, -1)}, service: { assertion: { claims: &c { x: *c } } } }`,
        ),
      /is nested too deep, or has an alias that leads into itself/,
    ],
    ['YAML twice', () => files.write('c.yaml', 'a: 1\n---\nb: 2'), /is not YAML: expected a single document/],
    ['YAML that runs code', () => files.write('c.yaml', 'a: !!js/function "HUSH"\n'), /is not YAML/],
    ['JSON with a word', () => files.write('c.json', '{\n "a": HUSH\n}'), /is not JSON at line 2, column 7/],
  ])('%s: a sentence says so, and quotes nothing of it', async (_, make, sentence) => {
    const message = await refusal(make())
    expect(message).toMatch(sentence)
    expect(message).not.toContain('HUSH')
  })

  it('follows no $import', async () => {
    const other = files.write('other.json', smallConfig())
    expect(await refusal(files.write('c.json', { $import: other }))).toMatch(/\$import: is an unknown key/)
  })
})

describe('owner and mode', () => {
  it.each([
    ['configuration', 0o620, /can be written by its group: `chmod go-w/],
    ['configuration', 0o602, /can be written by others: `chmod go-w/],
    ['configuration', 0o644, /holds a secret and can be read by everybody: `chmod o-rwx/],
    ['secret', 0o620, /credentials\.apiSecret: .* can be written by its group/],
    ['secret', 0o644, /credentials\.apiSecret: .* holds a secret and can be read by everybody: `chmod o-rwx/],
  ])('refuse a %s that others can write, or read a secret in, with mode %o', async (what, mode, sentence) => {
    const modes = { configuration: 0o640, secret: 0o640, [what]: mode }
    files.write('s', 'x', modes.secret)
    const credentials = { apiKey: 'k', apiSecret: { file: 's' } }
    expect(await refusal(write({ credentials }, modes.configuration))).toMatch(sentence)
    files.write('s', 'x', 0o640)
    expect((await load(write({ credentials }, 0o640))).credentials.apiSecret!.reveal()).toBe('x')
  })
  it('let others read a configuration without a secret', async () => {
    files.write('s', 'x')
    const credentials = { apiKey: { file: 's' }, apiSecret: { file: 's' } }
    expect((await load(write({ credentials }, 0o644))).credentials.apiKey!.reveal()).toBe('x')
  })
  it('are those of the file at the end of a link', async () => {
    write({}, 0o644)
    const path = link('kyc-tokend.config.json', 'link.json')
    expect(await refusal(path)).toMatch(/read by everybody/)
    write({}, 0o600)
    expect((await load(path)).file).toBe(path)
  })
  it('have a remedy that can be pasted, whatever the path', async () => {
    expect(await refusal(files.write("it's here.json", smallConfig(), 0o644))).toContain(
      `chmod o-rwx '${files.directory}/it'\\''s here.json'`,
    )
  })
  it.runIf(isRoot)('refuse a configuration that another owns', async () => {
    const path = write()
    chownSync(path, 12_345, 12_345)
    expect(await refusal(path)).toMatch(
      /belongs to the user 12345, and must belong to root: `sudo chown root/,
    )
  })
})

describe('secret sources', () => {
  const withSecret = (apiSecret: unknown): string => write({ credentials: { apiKey: 'k', apiSecret } })
  const secretOf = async (path: string, more: Partial<LoadOptions> = {}): Promise<string> =>
    (await load(path, more)).credentials.apiSecret!.reveal()

  it('take one newline from the end of a file, and no more', async () => {
    const path = withSecret({ file: 's' })
    files.write('s', 'with space \r\n')
    expect(await secretOf(path)).toBe('with space ')
    files.write('s', 'x\n\n')
    expect(await refusal(path)).toMatch(/another control character/)
  })
  it.each([
    ['an empty file', '', /is empty/],
    ['a secret on two lines', 'HU\nSH', /line break or another control character/],
    ['a byte order mark', '\uFEFFHUSH-HUSH\n', /holds an invisible character/],
    ['a zero-width space', 'HUSH\u200BHUSH', /holds an invisible character/],
    ['bytes that are no UTF-8', Buffer.from([0xff, 0xfe]), /is not valid UTF-8/],
  ])('refuse %s', async (_, content, sentence) => {
    files.write('s', content)
    const message = await refusal(withSecret({ file: 's' }))
    expect(message).toMatch(sentence)
    expect(message).toContain('credentials.apiSecret')
    expect(message).not.toContain('HUSH')
  })
  it('take a systemd credential of any mode, and name it', async () => {
    files.write('creds/api-secret', 'from-systemd\n', 0o444)
    const config = await load(withSecret({ credential: 'api-secret' }), {
      env: { ...env, CREDENTIALS_DIRECTORY: join(files.directory, 'creds') },
    })
    expect(config.credentials.apiSecret!.reveal()).toBe('from-systemd')
    expect(config.systemdCredentials).toEqual(['api-secret'])
  })
  it.each([
    [{}, 'api-secret', /no \$CREDENTIALS_DIRECTORY: add LoadCredential=api-secret:/],
    [{ KYC_TOKEND_ACCOUNT: 'eu' }, 'api-secret', / edit kyc-tokend@eu && .* restart kyc-tokend@eu`/],
    [{ CREDENTIALS_DIRECTORY: 'creds' }, 'api-secret', /is not there: add LoadCredential/],
    [{ CREDENTIALS_DIRECTORY: 'creds' }, 'folder', /: the systemd credential \/\S+\/folder is a directory/],
  ])('say how a credential gets there: %j, %s', async (given, credential, sentence) => {
    files.write('creds/folder/x', '')
    const { CREDENTIALS_DIRECTORY: name, ...more } = given as Record<string, string>
    const directory = name === undefined ? {} : { CREDENTIALS_DIRECTORY: join(files.directory, name) }
    const path = withSecret({ credential })
    const seen = { ...env, ...more, ...directory }
    expect(await refusal(path, { env: seen })).toMatch(sentence)
    const inspected = await inspectConfig({ configPath: path, env: seen, isElsewhere: true })
    expect(inspected).toMatchObject({ faults: [], unseen: ['credentials.apiSecret'] })
    // They are "k", which is short, and what only the daemon sees.
    expect(inspected.config?.warnings.at(-1)).toMatch(
      /^credentials\.apiSecret: cannot be checked from here, because only the daemon sees it/,
    )
  })
  it('are taken with a warning where they are shorter than 8 characters', async () => {
    files.write('s', 'HUSHHUS\n')
    for (const [apiSecret, words] of [
      [{ file: 's' }, [/^credentials\.apiSecret: the file .*\/s has fewer than 8 characters/]],
      ['HUSHHUS', [/^credentials\.apiSecret: the secret has fewer than 8 characters/]],
      ['HUSHHUSH', []],
    ] as const) {
      const { warnings } = await load(write({ credentials: { apiKey: 'key-0815', apiSecret } }))
      expect(warnings).toEqual(words.map((word) => expect.stringMatching(word) as string))
      expect(warnings.join()).not.toContain('HUSH')
    }
  })
  it('take the environment', async () => {
    const path = withSecret({ env: 'KYC_SECRET' })
    expect(await secretOf(path, { env: { ...env, KYC_SECRET: 'e' } })).toBe('e')
    expect(await refusal(path, { env: { ...env, KYC_SECRET: '' } })).toMatch(/KYC_SECRET is empty/)
    expect(await refusal(path)).toMatch(/KYC_SECRET is not set/)
  })
})

it('has a plan that needs no secret, and is that of the defaults without a file', async () => {
  const credentials = { apiKey: { env: 'NOT_SET' }, apiSecret: { file: 'none' } }
  const planOf = (settings: object) => loadPlan({ configPath: write({ credentials, ...settings }), env })
  const retry = { initialDelayMs: 1_000, maxDelayMs: 300_000 }
  expect(await loadPlan({ configPath: undefined, env })).toMatchObject({ retry, isShared: false })
  expect(await planOf({ retry: { maxDelay: '1h' } })).toMatchObject({ retry: { maxDelayMs: 3_600_000 } })
  expect(await planOf({ share: { servers: ['h:1'] } })).toMatchObject({ isShared: true })
  expect((await refusalOf(planOf({ retry: { maxDelay: 5 } }))).message).toContain('retry.maxDelay')
  const missing = await refusalOf(loadPlan({ configPath: join(files.directory, 'none.json'), env }))
  expect(missing.message).toContain('there is no configuration file')
})

describe('a secret that Kubernetes projects', () => {
  it('may be a link, read by a group; where all may read it the remedy is in the pod', async () => {
    files.write('vol/..2026_11/s', 'from-a-pod', 0o440)
    link('..2026_11', 'vol/..data')
    link('..data/s', 'vol/s')
    const path = write({ credentials: { apiKey: 'key-0815', apiSecret: { file: 'vol/s' } } })
    expect((await load(path)).credentials.apiSecret!.reveal()).toBe('from-a-pod')
    chmodSync(join(files.directory, 'vol/..2026_11/s'), 0o644)
    expect(await refusal(path)).toMatch(/read by everybody: set defaultMode: 0440 at its volume and fsGroup/)
  })
})

describe('faults that only the host shows', () => {
  it.each([
    [
      { tokenFiles: [{ path: 't' }, { path: './x/../t' }] },
      /tokenFiles\[1\]\.path: is \/run\/kyc-tokend\/t, and that is tokenFiles\[0\]\.path too/,
    ],
    [{ tokenFiles: [{ path: 'ipc.sock' }] }, /ipc\.path: .*tokenFiles\[0\]\.path too/],
    [{ http: { path: 'ipc.sock' } }, /http\.path: .*ipc\.path too/],
    [{ tokenFiles: [{ path: 'alert.json' }] }, /a file of the daemon itself/],
    [{ stateDirectory: '/var/s', tokenFiles: [{ path: '/var/s/key' }] }, /a file of the daemon itself/],
    [{ stateDirectory: '/var/s', tokenFiles: [{ path: '/var/s' }] }, /that is the state directory/],
    [{ tokenFiles: [{ path: '.' }] }, /that is the runtime directory/],
    [{ ipc: { path: `/${'x'.repeat(107)}` } }, /ipc\.path: is 108 bytes long .* at most 107/],
    [{ ipc: { allow: { users: ['no-such-user'] } } }, /ipc\.allow\.users\[0\]: there is no user no-such/],
    [{ tokenFiles: [{ path: 't', group: 'no-such-group' }] }, /\.group: there is no group .*groupadd/],
  ])('are found in %j', async (settings, sentence) => {
    expect(await refusal(write(settings))).toMatch(sentence)
  })
  it('are token files over the configuration or a secret', async () => {
    files.write('s', 'x')
    const credentials = { apiKey: 'k', apiSecret: { file: 's' } }
    const over = (path: string): string =>
      write({ credentials, runtimeDirectory: '.', tokenFiles: [{ path }] })
    expect(await refusal(over('kyc-tokend.config.json'))).toMatch(/that is the configuration itself/)
    expect(await refusal(over('s'))).toMatch(/that is a file that the configuration is read from/)
  })
  it('are a caFile without a certificate; one with is read', async () => {
    const path = write({ request: { caFile: 'ca.pem' } })
    files.write('ca.pem', 'no certificate')
    expect(await refusal(path)).toMatch(/request\.caFile: .*holds no certificate/)
    files.write('ca.pem', '-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n')
    expect(await refusal(path)).toMatch(/holds no certificate/)
    const { cert } = createAuthority()
    files.write('ca.pem', cert, 0o644)
    expect((await load(path)).request.ca).toBe(cert)
  })
  it('are reported together, once those of the shape are gone', async () => {
    const at = (faults: readonly { at: string }[]) => faults.map((fault) => fault.at).toSorted()
    const misshapen = write({
      credentials: { apiKey: { env: 'NOT_SET' }, apiSecret: 5 },
      refresh: { maxAge: 5, maxAeg: 'HUSH' },
      tokenFiles: ['x', { path: 't', group: 'no-such-group', mode: 640 }],
      ipc: 'x',
    })
    const { faults, lines, message } = await refusalOf(load(misshapen))
    expect(message.startsWith(`${misshapen} has 6 faults:\n  `)).toBe(true)
    expect(lines.join('\n')).toBe(message)
    expect(message).not.toContain('HUSH')
    const ofFiles = ['tokenFiles[0]', 'tokenFiles[1].mode']
    const wrong = ['credentials.apiSecret', 'ipc', 'refresh.maxAeg', 'refresh.maxAge', ...ofFiles]
    expect(at(faults)).toEqual(wrong)
    const path = write({
      credentials: { apiKey: { env: 'NOT_SET' }, apiSecret: 'secret-1' },
      tokenFiles: [{ path: 't', group: 'no-such-group' }],
      request: { trust: 'file' },
    })
    const across = (await refusalOf(load(path))).faults
    expect(at(across)).toEqual(['credentials.apiKey', 'request.caFile', 'tokenFiles[0].group'])
  })
})
