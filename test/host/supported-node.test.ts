import { expect, test } from 'vitest'
import manifest from '../../package.json' with { type: 'json' }
import { requireSupportedNode } from '../../src/host/system.ts'

test('the program refuses a Node that is older than the one that engines names', () => {
  expect(manifest.engines.node).toBe('>=24.18.1')
  for (const version of ['24.18.1', '24.18.10', '24.21.0', '26.0.0', process.versions.node])
    requireSupportedNode(version)
  for (const version of ['18.20.0', '22.23.2', '24.9.3', '24.18.0'])
    expect(() => requireSupportedNode(version)).toThrow(
      `kyc-tokend needs Node 24.18.1 or newer, and this is v${version}`,
    )
})
