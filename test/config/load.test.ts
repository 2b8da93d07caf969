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
const isRoot = process.getuid!() === 0
const load = (configPath: string, more: Partial<LoadOptions> = {}): Promise<Config> =>
  loadConfig({ configPath, env, ...more })
const refusal = async (configPath: string, more: Partial<LoadOptions> = {}): Promise<string> =>
  (await refusalOf(load(configPath, more))).message
const write = (settings: object = {}, mode = 0o600): string =>
  files.write('kyc-tokend.config.json', { ...smallConfig(), ...settings }, mode)
function fifo(): string {
  const path = join(files.directory, 'c.json')
  execFileSync('mkfifo', [path])
  return path
}
function link(target: string, name: string): string {
  const path = join(files.directory, name)
  symlinkSync(target, path)
  return path
}

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
    expect(config.pair.apiSecret!.reveal()).toBe('secret-1')
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
    expect((await load(files.write('c.yml', yaml))).pair.apiSecret!.reveal()).toBe('key-0815')
  })

  it('keeps what only a restart changes as the running daemon has it, and names it', async () => {
    const inForce = await loadConfig({ configPath: write(), env: {} })
    const moved = { runtimeDirectory: '/srv/run', stateDirectory: '/srv/state', http: false }
    const next = await loadConfig({ configPath: write(moved), env: {}, inForce })
    expect(next.read.needsRestart).toEqual(['runtimeDirectory', 'stateDirectory', 'http'])
    expect(next).toMatchObject({ runtimeDirectory: inForce.runtimeDirectory, http: { mode: 0o600 } })
    expect(next.tokenFiles).toEqual(inForce.tokenFiles)
    expect((await loadConfig({ configPath: write(), env: {}, inForce })).read.needsRestart).toEqual([])
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
  it.each<[string, () => string, RegExp]>([
    ['a device', () => '/dev/null', /is not a regular file/],
    ['a FIFO, which is not opened', fifo, /is not a regular file/],
    ['code', () => files.write('c.json.js', 'process.exit(3)'), /must be named \*\.json, \*\.yaml or/],
    ['an empty file', () => files.write('c.json', ' \n'), /is empty: begin with kyc-tokend\.config\.example/],
    ['more than 1 MiB', () => files.write('c.json', ' '.repeat(1024 * 1024 + 1)), /is larger than 1 MiB/],
    ['an odd path', () => files.write('a\u001b[2J/c.json', {}), /has a control character in its path/],
    ['Latin-1', () => files.write('c.json', Buffer.from('"\u00e9"', 'latin1')), /is not valid UTF-8/],
    ['a key twice', () => files.write('c.yaml', 'a: 1\na: 2'), /not YAML at line 2, column 1: duplicate key/],
    ['a tag of code', () => files.write('c.yaml', 'a: !!js/function "HUSH"'), /not YAML at line 1, column 4/],
    ['an alias in itself', () => files.write('c.yaml', 'a: &c { x: *c }'), /an alias that leads into itself/],
  ])('%s: a sentence says so, and quotes nothing of it', async (_, make, sentence) => {
    const message = await refusal(make())
    expect(message).toMatch(sentence)
    expect(message).not.toContain('HUSH')
  })

  it.each([
    ['{"a": HUSH}', 1, 7],
    ['{\n  "a": 1,\n}', 2, 9],
    ['{\n  // HUSH\n}', 2, 3],
    ['{"a": 1 "b": 2}', 1, 7],
    ["{'HUSH': 1}", 1, 2],
    ['{"a": [1, 02]}', 1, 11],
    ['a: 1', 1, 1],
  ])('%j is no JSON at line %i, column %i', async (text, line, column) => {
    const message = await refusal(files.write('c.json', text))
    expect(message).toContain(`is not JSON at line ${line}, column ${column}: `)
    expect(message).not.toContain('HUSH')
  })
})

describe('owner and mode', () => {
  const credentials = { apiKey: 'key-0815', apiSecret: { file: 's' } }
  it.each([
    ['configuration', 0o620, /can be written by others than its owner: `chmod go-w \S+\.json`/],
    ['configuration', 0o644, /holds a secret and can be read by everybody: `chmod o-rwx/],
    ['secret', 0o602, /credentials\.apiSecret: the file \S+ can be written by others/],
    ['secret', 0o644, /credentials\.apiSecret: the file \S+ holds a secret and can be read by everybody/],
  ])('refuse a %s with mode %o', async (what, mode, sentence) => {
    const modes = { configuration: 0o640, secret: 0o640, [what]: mode }
    files.write('s', 'secret-1', modes.secret)
    expect(await refusal(write({ credentials }, modes.configuration))).toMatch(sentence)
    files.write('s', 'secret-1', 0o640)
    expect((await load(write({ credentials }, 0o640))).pair.apiSecret!.reveal()).toBe('secret-1')
  })
  it('let others read a configuration without a secret, and are those of the end of a link', async () => {
    files.write('s', 'secret-1')
    const source = { file: 's' }
    await load(write({ credentials: { apiKey: source, apiSecret: source } }, 0o644))
    write({}, 0o644)
    const path = link('kyc-tokend.config.json', "it's a link.json")
    expect(await refusal(path)).toMatch(/'\S+it'\\''s a link\.json'`$/)
  })
  it.runIf(isRoot)('refuse a configuration of another user', async () => {
    const path = write()
    chownSync(path, 12_345, 12_345)
    expect(await refusal(path)).toMatch(/must belong to root or the daemon's user: `sudo chown root/)
  })
  it('are told for Kubernetes, which projects a secret as a link, in words of the pod', async () => {
    files.write('vol/..2026_11/s', 'from-a-pod', 0o440)
    link('..2026_11', 'vol/..data')
    link('..data/s', 'vol/s')
    const path = write({ credentials: { apiKey: 'key-0815', apiSecret: { file: 'vol/s' } } })
    expect((await load(path)).pair.apiSecret!.reveal()).toBe('from-a-pod')
    chmodSync(join(files.directory, 'vol/..2026_11/s'), 0o644)
    expect(await refusal(path)).toMatch(/mode 644: set defaultMode: 0400 at its volume, and fsGroup at/)
  })
})

describe('a secret source', () => {
  const withSecret = (apiSecret: unknown): string => write({ credentials: { apiKey: 'key-0815', apiSecret } })

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
    expect(message).not.toMatch(/HUSH/)
  })
  it('loses one newline of a file and of a credential, and none of a variable', async () => {
    files.write('s', 'with space \r\n')
    files.write('creds/s', 'from-systemd\n', 0o444)
    const seen = { ...env, CREDENTIALS_DIRECTORY: join(files.directory, 'creds'), S: 'from-env' }
    const secretOf = async (source: object) =>
      (await load(withSecret(source), { env: seen })).pair.apiSecret!.reveal()
    expect(await secretOf({ file: 's' })).toBe('with space ')
    expect(await secretOf({ credential: 's' })).toBe('from-systemd')
    expect(await secretOf({ env: 'S' })).toBe('from-env')
    const { read } = await load(withSecret({ credential: 's' }), { env: seen })
    expect(read.systemdCredentials).toEqual(['s'])
    expect(await refusal(withSecret({ env: 'S' }), { env: { ...env, S: '' } })).toMatch(/apiSecret: is empty/)
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

describe('a certificate', () => {
  it('fits its key, which has no passphrase; one that has ended is a warning', async () => {
    const authority = createAuthority()
    const own = createCertificate(authority, { names: ['web-1'] })
    const ended = createCertificate(authority, { names: ['web-1'], notBeforeMs: 0, notAfterMs: 86_400_000 })
    const cipher = { type: 'pkcs8', format: 'pem', cipher: 'aes-256-cbc', passphrase: 'HUSH' } as const
    files.write('locked', createPrivateKey(own.key).export(cipher).toString())
    for (const [name, { cert, key }] of Object.entries({ own, ended, authority })) {
      files.write(`${name}.pem`, `of the authority\n${cert}`)
      files.write(`${name}.key`, key)
    }
    const path = (certFile: string, key: string): string =>
      write({ request: { clientCertificate: { certFile, key: { file: key } } } })
    const { pair, read } = await load(path('own.pem', 'own.key'))
    expect(pair.clientCertificate!.key.reveal()).toBe(own.key.trim())
    expect(pair.files).toEqual(['own.pem', 'own.key'].map((name) => join(files.directory, name)))
    expect(read.warnings).toEqual([])
    const old = await load(path('ended.pem', 'ended.key'))
    expect(old.read.warnings).toEqual([
      expect.stringMatching(/clientCertificate\.certFile: is valid .* to 1970-01-02/),
    ])
    expect(old.pair.ends.certificate).toEqual({ fromMs: 0, endMs: 86_400_000 })
    expect(await refusal(path('own.pem', 'ended.key'))).toMatch(/certFile: is not that of its key/)
    expect(await refusal(path('own.pem', 'locked'))).toMatch(/key: holds no private key .* passphrase/)
    expect(await refusal(path('own.key', 'own.key'))).toMatch(/certFile: holds no certificate/)
    expect(await refusal(write({ request: { caFile: 'own.key' } }))).toMatch(/caFile: holds no certificate/)
    expect((await load(write({ request: { caFile: 'own.pem', trust: 'file' } }))).request).toMatchObject({
      ca: expect.stringContaining(own.cert) as string,
      isBuiltInTrusted: false,
    })
  })
})

describe('assertions and servers', () => {
  it('takes a signing key that fits its algorithm alone', async () => {
    const { privateKey } = generateKeyPairSync('ed25519')
    files.write('key', privateKey.export({ type: 'pkcs8', format: 'pem' }).toString())
    const settings = (algorithm: string): object => ({
      service: { send: 'assertion', assertion: { key: { file: 'key' }, algorithm, claims: { aud: null } } },
    })
    const { pair } = await load(write(settings('EdDSA')))
    const signed = { kind: 'signed', algorithm: 'EdDSA', as: 'client', lifetimeMs: 60_000 }
    expect(pair.assertion).toMatchObject(signed)
    expect(await refusal(write(settings('RS256')))).toMatch(/assertion\.key: .*\(ed25519\) .* not for RS256/)
  })

  it('lets a ready-made assertion be without key and secret, and its file be missing', async () => {
    const settings = {
      credentials: { apiKey: null, apiSecret: null },
      service: { send: 'assertion', assertion: { file: 'jwt', as: 'exchange' } },
    }
    const ready = { kind: 'ready', file: join(files.directory, 'jwt'), as: 'exchange', type: null }
    expect((await load(write(settings))).pair.assertion).toEqual(ready)
  })

  it('Unix socket, IPv6 and sentinels are servers', async () => {
    const { share: shared } = await load(write({ share: { servers: ['./redis.sock'] } }))
    expect(shared).toMatchObject({ servers: [{ path: join(files.directory, 'redis.sock') }], tls: null })
    const sentinel = { name: 'mymaster', password: 'of-the-sentinel' }
    const several = { servers: ['[::1]:65535', 'b:1'], sentinel, key: '0123456789abcdef' }
    const other = (await load(write({ share: several }))).share!
    expect(other.servers[0]).toEqual({ host: '::1', port: 65_535 })
    expect(other.sentinel!.password!.reveal()).toBe('of-the-sentinel')
    expect(other.tls).toEqual({ ca: null, serverName: null, cert: null, key: null })
  })
})
