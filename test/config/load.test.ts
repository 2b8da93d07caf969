// Loading a configuration: where it is found, what it may be, owners and modes, secrets, and rules between settings.
import { execFileSync } from 'node:child_process'
import { chmodSync, chownSync, readFileSync, symlinkSync } from 'node:fs'
import { createPrivateKey, generateKeyPairSync } from 'node:crypto'
import { join } from 'node:path'
import { describe, expect, it } from 'vitest'
import type { Config } from '../../src/config/config.ts'
import { loadConfig, loadService, type LoadOptions } from '../../src/config/load.ts'
import { createAuthority, createCertificate } from '../support/certificates.ts'
import { refusalOf, serviceEnv as env, smallConfig, useConfigFiles } from '../support/config-files.ts'

const files = useConfigFiles()
const load = (configPath: string, more: Partial<LoadOptions> = {}): Promise<Config> =>
  loadConfig({ configPath, env, ...more })
const refusal = async (configPath: string, more: Partial<LoadOptions> = {}): Promise<string> =>
  (await refusalOf(load(configPath, more))).message
const write = (settings: object = {}, mode = 0o600): string =>
  files.write('kyc-tokend.config.json', { ...smallConfig(), ...settings }, mode)
const withSecret = (apiSecret: unknown, mode?: number): string =>
  write({ credentials: { apiKey: 'key-0815', apiSecret } }, mode)
const secretOf = ({ pair }: Config): string => pair.apiSecret!.reveal()

describe('a good configuration', () => {
  it('has the documented defaults, and prints no secret', async () => {
    const config = await load(write())
    const socket = { mode: 0o600, group: null, maxConnections: 512, maxConnectionsPerUser: 128 }
    expect(config).toMatchObject({
      request: { timeoutMs: 15_000, connectTimeoutMs: 5_000, ca: null, isBuiltInTrusted: true, proxy: null },
      policy: { maxAgeMs: 900_000, initialDelayMs: 1_000, maxDelayMs: 300_000 },
      tokenFiles: [
        { path: `${env.RUNTIME_DIRECTORY}/token`, format: 'raw', mode: 0o600, uid: null, gid: null },
      ],
      ipc: socket,
      http: { ...socket, maxRequestsPerSecond: null },
      alerts: { remindAfterMs: [3_600_000, 21_600_000, 86_400_000], noTokenAfterMs: 600_000, contact: null },
      share: null,
      runtimeDirectory: env.RUNTIME_DIRECTORY,
      stateDirectory: env.STATE_DIRECTORY,
      read: { warnings: [], needsRestart: [] },
    })
    expect(secretOf(config)).toBe('secret-1')
    expect(JSON.stringify(config)).not.toContain('secret-1')
  })

  it('resolves outputs against the runtime directory, and inputs against its own', async () => {
    files.write('secret', 'from-file-1\n')
    const settings = {
      credentials: { apiKey: 'key-0815', apiSecret: { file: 'secret' }, expiresAt: '2027-03-01' },
      runtimeDirectory: 'run',
      stateDirectory: '/srv/state',
      tokenFiles: [{ path: 'token' }, { path: '/srv/token', mode: '640', owner: 'root', group: '7' }],
      ipc: { allow: { users: ['root', 5, '6'], groups: ['root'] }, maxConnections: 64 },
      http: false,
      retry: { initialDelay: '2m', maxDelay: '1m' },
      alerts: { remindAfter: ['6h', '1h'], noTokenAfter: null },
    }
    const config = await loadConfig({ configPath: write(settings), env: {} })
    const runtimeDirectory = join(files.directory, 'run')
    expect(config).toMatchObject({
      runtimeDirectory,
      stateDirectory: '/srv/state',
      tokenFiles: [
        { path: join(runtimeDirectory, 'token') },
        { path: '/srv/token', mode: 0o640, uid: 0, gid: 7 },
      ],
      ipc: { allow: { users: [0, 5, 6], groups: [0] }, maxConnections: 64 },
      http: null,
      alerts: { remindAfterMs: [21_600_000, 3_600_000], noTokenAfterMs: null },
      pair: { ends: { credentialsMs: Date.parse('2027-03-02') }, files: [join(files.directory, 'secret')] },
    })
  })

  it('is the example, once the credentials are there', async () => {
    const example = readFileSync(new URL('../../kyc-tokend.config.example.json', import.meta.url), 'utf8')
    const path = files.write('kyc-tokend.config.json', example)
    expect(await refusal(path)).toMatch(/credentials\.apiKey: the file .*api-key is not there: make it/)
    files.write('api-key', 'key-0815\n')
    files.write('api-secret', 'secret-1\n')
    expect((await load(path)).pair.apiKey!.reveal()).toBe('key-0815')
  })

  it('may be YAML, with a byte order mark and anchors', async () => {
    const yaml =
      '\uFEFFbaseUrl: https://a.example\ncredentials: { apiKey: &k key-0815, apiSecret: *k } # yes\n'
    expect(secretOf(await load(files.write('c.yml', yaml)))).toBe('key-0815')
  })

  it('says which service it is without its secrets', async () => {
    const credentials = { apiKey: { env: 'NOT_SET' }, apiSecret: { file: 'none' } }
    const service = { preset: 'oauth2', tokenUrl: '/token?x=1', send: 'form', names: { apiKey: 'id' } }
    const configPath = write({ baseUrl: 'https://API.example.com:443/kyc//', credentials, service })
    expect(await loadService({ configPath, env })).toMatchObject({
      service: {
        baseUrl: 'https://api.example.com/kyc',
        tokenUrl: 'https://api.example.com/kyc/token?x=1',
        lifetime: ['expires_in'],
      },
      pair: { send: 'form', names: { apiKey: 'id', apiSecret: 'client_secret' }, token: ['access_token'] },
    })
  })
})

describe('where a configuration is found', () => {
  it('is --config, before $KYC_TOKEND_CONFIG; where none is there, a sentence says what was searched', async () => {
    const one = files.write('one.json', { ...smallConfig(), log: { level: 'debug' } })
    const other = files.write('other.json', { ...smallConfig(), log: { level: 'error' } })
    const withVariable = { ...env, KYC_TOKEND_CONFIG: other }
    expect((await loadConfig({ configPath: one, env: withVariable })).log.level).toBe('debug')
    expect((await loadConfig({ env: withVariable })).log.level).toBe('error')
    expect(await refusal('/etc/kyc-tokend/accounts/nowhere.json')).toMatch(
      /no configuration file .*nowhere\.json: `kyc-tokend setup --account nowhere` makes it .* with --config/,
    )
  })
})

describe('a file that cannot be a configuration', () => {
  it.each<[string, string | Buffer, RegExp]>([
    ['c.json.js', 'process.exit(3)', /must be named \*\.json, \*\.yaml or/],
    ['c.json', ' \n', /is empty: begin with kyc-tokend\.config\.example/],
    ['a\u001b[2J/c.json', '{}', /has a control character in its path/],
    ['c.json', Buffer.from('"\u00e9"', 'latin1'), /is not valid UTF-8/],
    ['c.yaml', 'a: 1\na: 2', /not YAML at line 2, column 1: duplicate key/],
    ['c.yaml', 'a: !!js/function "HUSH"', /not YAML at line 1, column 4/],
    ['c.yaml', 'a: &c { x: *c }', /an alias that leads into itself/],
    ['c.json', '{"a": HUSH}', /is not JSON at line 1, column 7: /],
    ['c.json', '{\n  "a": 1,\n}', /is not JSON at line 2, column 9: /],
    ['c.json', '{\n  // HUSH\n}', /is not JSON at line 2, column 3: /],
    ['c.json', "{'HUSH': 1}", /is not JSON at line 1, column 2: /],
    ['c.json', '{"a": [1, 02]}', /is not JSON at line 1, column 11: /],
  ])('%j with %j: a sentence says so, and quotes nothing of it', async (name, content, sentence) => {
    const message = await refusal(files.write(name, content))
    expect(message).toMatch(sentence)
    expect(message).not.toContain('HUSH')
  })

  it('is a device, a FIFO, which is not opened, or larger than 1 MiB', async () => {
    const fifo = join(files.directory, 'fifo.json')
    execFileSync('mkfifo', [fifo])
    for (const path of ['/dev/null', fifo]) expect(await refusal(path)).toMatch(/is not a regular file/)
    const large = files.write('c.json', ' '.repeat(1024 * 1024 + 1))
    expect(await refusal(large)).toMatch(/is larger than 1 MiB/)
  })
})

describe('owner and mode', () => {
  it.each([
    ['configuration', 0o620, /can be written by others than its owner: `chmod go-w \S+\.json`/],
    ['configuration', 0o644, /holds a secret and can be read by everybody: `chmod o-rwx/],
    ['secret', 0o602, /credentials\.apiSecret: the file \S+ can be written by others/],
    ['secret', 0o644, /credentials\.apiSecret: the file \S+ holds a secret and can be read by everybody/],
  ])('refuse a %s with mode %o', async (what, mode, sentence) => {
    const secretFile = files.write('s', 'secret-1', 0o640)
    const configFile = withSecret({ file: 's' }, 0o640)
    expect(secretOf(await load(configFile))).toBe('secret-1')
    chmodSync(what === 'secret' ? secretFile : configFile, mode)
    expect(await refusal(configFile)).toMatch(sentence)
  })
  it('let others read a configuration without a secret, and are those of the end of a link', async () => {
    files.write('s', 'secret-1')
    const source = { file: 's' }
    await load(write({ credentials: { apiKey: source, apiSecret: source } }, 0o644))
    const path = join(files.directory, "it's a link.json")
    symlinkSync(write({}, 0o644), path)
    expect(await refusal(path)).toMatch(/'\S+it'\\''s a link\.json'`$/)
  })
  it.runIf(process.getuid!() === 0)('refuse a configuration of another user', async () => {
    const path = write()
    chownSync(path, 12_345, 12_345)
    expect(await refusal(path)).toMatch(/must belong to root or the daemon's user: `sudo chown root/)
  })
  it('are told for Kubernetes, which projects a secret as a link, in words of the pod', async () => {
    const projected = files.write('..data/s', 'from-a-pod', 0o440)
    symlinkSync('..data/s', join(files.directory, 's'))
    const path = withSecret({ file: 's' })
    expect(secretOf(await load(path))).toBe('from-a-pod')
    chmodSync(projected, 0o644)
    expect(await refusal(path)).toMatch(/mode 644: set defaultMode: 0400 at its volume, and fsGroup at/)
  })
})

describe('a secret source', () => {
  it.each<[string, string | Buffer | null, RegExp]>([
    ['that is missing', null, /the file \S+\/s is not there: make it .*mode 0640/],
    ['that is empty', '\n', /is empty: put the secret there/],
    ['with two newlines', 'HUSH-HUSH\n\n', /line break or another invisible character/],
    ['with a byte order mark', '\uFEFFHUSH-HUSH\n', /or another invisible character/],
    ['that is no UTF-8', Buffer.from([0xff, 0xfe]), /in UTF-8/],
  ])('%s is refused as a file, without its value', async (_, content, sentence) => {
    if (content !== null) files.write('s', content)
    const message = await refusal(withSecret({ file: 's' }))
    expect(message).toMatch(sentence)
    expect(message).toContain('credentials.apiSecret')
    expect(message).not.toContain('HUSH')
  })
  it('loses one newline of a file and of a credential, and none of a variable', async () => {
    files.write('s', 'with space \r\n')
    files.write('creds/s', 'from-systemd\n', 0o444)
    const seen = { ...env, CREDENTIALS_DIRECTORY: join(files.directory, 'creds'), S: 'from-env', EMPTY: '' }
    const loaded = async (source: object) => load(withSecret(source), { env: seen })
    expect(secretOf(await loaded({ file: 's' }))).toBe('with space ')
    const ofSystemd = await loaded({ credential: 's' })
    expect([secretOf(ofSystemd), ofSystemd.read.systemdCredentials]).toEqual(['from-systemd', ['s']])
    expect(secretOf(await loaded({ env: 'S' }))).toBe('from-env')
    expect(await refusal(withSecret({ env: 'EMPTY' }), { env: seen })).toMatch(/apiSecret: is empty/)
  })
  it.each([
    [{ env: 'NOT_SET' }, /variable NOT_SET is not set: set it where kyc-tokend starts/],
    [{ credential: 's' }, /credential s needs \$CREDENTIALS_DIRECTORY: add LoadCredential=s:\/PATH/],
  ])('%j that only the daemon sees is a fault there, and a warning elsewhere', async (source, sentence) => {
    const configPath = withSecret(source)
    expect(await refusal(configPath)).toMatch(sentence)
    const { read } = await load(configPath, { isElsewhere: true })
    expect(read.unseen).toEqual(['credentials.apiSecret'])
    expect(read.warnings).toEqual([expect.stringMatching(/^credentials\.apiSecret: cannot be checked from/)])
  })
})

it('a client certificate fits its key, which has no passphrase; one that has ended is a warning', async () => {
  const authority = createAuthority()
  const own = createCertificate(authority, { names: ['web-1'] })
  const ended = createCertificate(authority, { names: ['web-1'], notBeforeMs: 0, notAfterMs: 86_400_000 })
  const cipher = { type: 'pkcs8', format: 'pem', cipher: 'aes-256-cbc', passphrase: 'HUSH' } as const
  files.write('locked', createPrivateKey(own.key).export(cipher).toString())
  for (const [name, { cert, key }] of Object.entries({ own, ended })) {
    files.write(`${name}.pem`, `of the authority\n${cert}`)
    files.write(`${name}.key`, key)
  }
  const settingsFor = (certFile: string, key: string): object => ({
    request: { clientCertificate: { certFile, key: { file: key } } },
  })
  const { pair, read } = await files.load(settingsFor('own.pem', 'own.key'))
  expect(pair.clientCertificate!.key.reveal()).toBe(own.key.trim())
  expect(pair.files).toEqual(['own.pem', 'own.key'].map((name) => join(files.directory, name)))
  expect(read.warnings).toEqual([])
  const old = await files.load(settingsFor('ended.pem', 'ended.key'))
  expect(old.read.warnings).toEqual([expect.stringMatching(/certFile: is valid .* to 1970-01-02/)])
  expect(old.pair.ends.certificate).toEqual({ fromMs: 0, endMs: 86_400_000 })
  for (const [settings, sentence] of [
    [settingsFor('own.pem', 'ended.key'), /certFile: is not that of its key/],
    [settingsFor('own.pem', 'locked'), /key: holds no private key .* passphrase/],
    [settingsFor('own.key', 'own.key'), /certFile: holds no certificate/],
    [{ request: { caFile: 'own.key' } }, /caFile: holds no certificate/],
  ] as const)
    expect(await files.refusal(settings)).toMatch(sentence)
  const { request } = await files.load({ request: { caFile: 'own.pem', trust: 'file' } })
  expect(request).toMatchObject({ ca: expect.stringContaining(own.cert) as string, isBuiltInTrusted: false })
})

it('a signing key fits its algorithm', async () => {
  const { privateKey } = generateKeyPairSync('ed25519')
  files.write('key', privateKey.export({ type: 'pkcs8', format: 'pem' }).toString())
  const settingsFor = (algorithm: string): object => ({
    service: { send: 'assertion', assertion: { key: { file: 'key' }, algorithm, claims: { aud: null } } },
  })
  const { pair } = await files.load(settingsFor('EdDSA'))
  const signed = { kind: 'signed', algorithm: 'EdDSA', as: 'client', lifetimeMs: 60_000 }
  expect(pair.assertion).toMatchObject(signed)
  expect(await files.refusal(settingsFor('RS256'))).toMatch(/assertion\.key: .*\(ed25519\) .* not for RS256/)
})

it('Unix socket, IPv6 and sentinels are servers of a fleet', async () => {
  const { share } = await files.load({ share: { servers: ['./redis.sock'] } })
  expect(share).toMatchObject({ servers: [{ path: join(files.directory, 'redis.sock') }], tls: null })
  const sentinel = { name: 'mymaster', password: 'of-the-sentinel' }
  const several = { servers: ['[::1]:65535', 'b:1'], sentinel, key: '0123456789abcdef' }
  const other = (await files.load({ share: several })).share!
  expect(other.servers[0]).toEqual({ host: '::1', port: 65_535 })
  expect(other.sentinel!.password!.reveal()).toBe('of-the-sentinel')
  expect(other.tls).toEqual({ ca: null, serverName: null, cert: null, key: null })
})
