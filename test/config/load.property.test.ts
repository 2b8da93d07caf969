import * as fc from 'fast-check'
import { createHash } from 'node:crypto'
import { afterAll, describe, expect, it } from 'vitest'

import type { Config } from '../../src/config/config.ts'
import { ConfigFaults } from '../../src/config/faults.ts'
import { loadConfig, type Judged } from '../../src/config/load.ts'
import { createConfigFiles, smallConfig } from '../support/config-files.ts'

const files = createConfigFiles()
afterAll(() => {
  files.remove()
})
const env = { RUNTIME_DIRECTORY: '/run/kyc-tokend', STATE_DIRECTORY: '/var/lib/kyc-tokend' }

function createJudged(): Judged & { spared: number } {
  const known = new Set<string>()
  const nameOf = (bytes: Buffer): string => createHash('sha256').update(bytes).digest('hex')
  const judged = {
    spared: 0,
    isKnownGood(bytes: Buffer): boolean {
      const isKnown = known.has(nameOf(bytes))
      if (isKnown) judged.spared += 1
      return isKnown
    },
    remember(bytes: Buffer): void {
      known.add(nameOf(bytes))
    },
  }
  return judged
}

const duration = fc.constantFrom('1m', '90s', '1.5h', '15m', '24h', '60000ms')
const shortDuration = fc.constantFrom('100ms', '1.5s', '2m')
const account = fc.constantFrom('root', 0, '12')
const mode = fc.constantFrom('0600', '640', '0660')
const path = fc.string({ minLength: 1, maxLength: 12 }).map((name) => `x-${name.replaceAll(/[/\0]/g, '_')}`)
const socket = fc.record(
  {
    mode,
    group: fc.option(account),
    allow: fc.record(
      { users: fc.array(account), groups: fc.array(fc.constantFrom('root', 3)) },
      { requiredKeys: [] },
    ),
    maxConnections: fc.integer({ min: 1, max: 65_536 }),
    maxConnectionsPerUser: fc.integer({ min: 1, max: 65_536 }),
    maxRequestsPerSecond: fc.option(fc.integer({ min: 1, max: 9_999 })),
  },
  { requiredKeys: [] },
)
const goodSettings = fc.record(
  {
    request: fc.record(
      { timeout: shortDuration, connectTimeout: shortDuration, caFile: fc.constant(null) },
      { requiredKeys: [] },
    ),
    refresh: fc.record({ maxAge: duration }, { requiredKeys: [] }),
    retry: fc.record({ maxDelay: duration }, { requiredKeys: [] }),
    tokenFiles: fc.uniqueArray(
      fc.record({ path, mode, owner: fc.option(account) }, { requiredKeys: ['path'] }),
      {
        selector: (file) => file.path,
        maxLength: 4,
      },
    ),
    ipc: socket,
    http: fc.oneof(fc.constant(false), socket),
    alerts: fc.record({ remindAfter: fc.array(duration) }, { requiredKeys: [] }),
    runtimeDirectory: fc.option(fc.constantFrom('run', '/srv/run')),
  },
  { requiredKeys: [] },
)

const HUSH = 'hush-7f3a'
/** Wrong in every way, with the secret in each place but where a name belongs that may be told. */
const anySource = fc.constantFrom(
  HUSH,
  [HUSH],
  { [HUSH]: HUSH },
  { env: HUSH },
  { file: [HUSH] },
  { file: 'x', [HUSH]: 1 },
  { credential: `../${HUSH}` },
  `${HUSH}\n`,
  '',
  null,
  5,
)
const anyValue = fc.letrec<{ node: unknown }>((tie) => ({
  node: fc.oneof(
    { depthSize: 'small', withCrossShrink: true },
    fc.constantFrom('x', '', null, 5, -1, 1e300, true, '15m', '0640', []),
    fc.array(tie('node'), { maxLength: 3 }),
    fc.dictionary(
      fc.constantFrom(
        'request',
        'timeout',
        'caFile',
        'path',
        'mode',
        'allow',
        'level',
        'maxDelay',
        '__proto__',
      ),
      tie('node'),
      { maxKeys: 4 },
    ),
  ),
})).node
const anyDocument = fc.record(
  {
    baseUrl: fc.constantFrom(HUSH, `https://u:${HUSH}@h`, `https://h/?${HUSH}`, 5, 'https://h'),
    credentials: fc.oneof(
      fc.record({ apiKey: anySource, apiSecret: anySource, apiSecert: anySource }, { requiredKeys: [] }),
      anySource.filter((source) => !JSON.stringify(source).includes('{')),
    ),
    request: anyValue,
    tokenFiles: anyValue,
    ipc: anyValue,
    http: anyValue,
    log: anyValue,
    wrong: anyValue,
  },
  { requiredKeys: ['wrong'] },
)

async function loaded(file: string, judged?: Judged): Promise<Config | ConfigFaults> {
  try {
    return await loadConfig({ configPath: file, env, judged })
  } catch (error) {
    if (error instanceof ConfigFaults) return error
    throw error
  }
}
const plain = (config: Config): unknown => ({
  ...config,
  credentials: {
    apiKey: config.credentials.apiKey.reveal(),
    apiSecret: config.credentials.apiSecret.reveal(),
  },
})

describe('loading a configuration', () => {
  it('gives the same, whether its bytes are judged or were judged before', async () => {
    await fc.assert(
      fc.asyncProperty(goodSettings, async (settings) => {
        const file = files.write('c.json', { ...smallConfig(), ...settings })
        const judged = createJudged()
        const first = await loaded(file, judged)
        const second = await loaded(file, judged)
        expect(first).not.toBeInstanceOf(ConfigFaults)
        expect(judged.spared).toBe(1)
        expect(plain(second as Config)).toEqual(plain(first as Config))
      }),
      { numRuns: 150 },
    )
  })

  it('judges permissions and secrets anew where the bytes are known', async () => {
    const judged = createJudged()
    files.write('s', 'one')
    const document = { ...smallConfig(), credentials: { apiKey: 'k', apiSecret: { file: 's' } } }
    const file = files.write('c.json', document)
    await loadConfig({ configPath: file, env, judged })
    files.write('s', 'two')
    expect((await loadConfig({ configPath: file, env, judged })).credentials.apiSecret.reveal()).toBe('two')
    files.write('c.json', document, 0o644)
    await expect(loadConfig({ configPath: file, env, judged })).rejects.toThrow(/read by everybody/)
    files.write('c.json', document)
    files.write('s', 'two', 0o644)
    await expect(loadConfig({ configPath: file, env, judged })).rejects.toThrow(/read by everybody/)
    expect(judged.spared).toBe(3)
  })

  it('remembers nothing that is faulty, and no YAML', async () => {
    const remembered: string[] = []
    const judged = {
      isKnownGood: () => false,
      remember: (bytes: Buffer) => void remembered.push(bytes.toString()),
    }
    await loaded(files.write('c.json', { baseUrl: 5 }), judged)
    await loaded(files.write('c.yaml', smallConfig()), judged)
    expect(remembered).toEqual([])
  })

  it('throws nothing but its faults, and never quotes a secret', async () => {
    await fc.assert(
      fc.asyncProperty(anyDocument, fc.constantFrom('c.json', 'c.yaml'), async (document, name) => {
        const outcome = await loaded(files.write(name, JSON.stringify(document)))
        expect(outcome).toBeInstanceOf(ConfigFaults)
        const { message, faults } = outcome as ConfigFaults
        expect(`${message} ${JSON.stringify(faults)}`).not.toContain(HUSH)
      }),
      { numRuns: 400 },
    )
  })

  it('throws nothing but its faults for any bytes', async () => {
    await fc.assert(
      fc.asyncProperty(
        fc.oneof(fc.uint8Array(), fc.string(), fc.json()),
        fc.constantFrom('c.json', 'c.yaml'),
        async (content, name) => {
          const bytes = typeof content === 'string' ? content : Buffer.from(content)
          expect(await loaded(files.write(name, bytes))).toBeInstanceOf(ConfigFaults)
        },
      ),
      { numRuns: 300 },
    )
  })
})
