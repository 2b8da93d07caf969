import * as fc from 'fast-check'
import { describe, expect, it } from 'vitest'

import { ConfigError } from '../../src/config/issues.ts'
import { loadConfig } from '../../src/config/load.ts'
import { serviceEnv as env, useConfigFiles } from '../support/config-files.ts'

const files = useConfigFiles()

const HUSH = 'hush-7f3a'
/** Wrong in every way, with the secret everywhere but in names that a message may repeat. */
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
      fc.constantFrom(...'request timeout caFile path mode allow level maxDelay __proto__'.split(' ')),
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

const loaded = (configPath: string): Promise<unknown> =>
  loadConfig({ configPath, env }).catch((error: unknown) => error)

describe('loading a configuration', () => {
  it('throws nothing but its faults, and never quotes a secret', async () => {
    await fc.assert(
      fc.asyncProperty(anyDocument, fc.constantFrom('c.json', 'c.yaml'), async (document, name) => {
        const outcome = await loaded(files.write(name, JSON.stringify(document)))
        expect(outcome).toBeInstanceOf(ConfigError)
        const { message, faults } = outcome as ConfigError
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
          expect(await loaded(files.write(name, bytes))).toBeInstanceOf(ConfigError)
        },
      ),
      { numRuns: 300 },
    )
  })
})
