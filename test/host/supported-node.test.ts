import { expect, test } from 'vitest'
import manifest from '../../package.json' with { type: 'json' }
import { nodeProblem } from '../../src/host/supported-node.ts'
import { manualText } from '../manual/manual.ts'

test('check warns of a Node that is older than the ones that engines names', () => {
  const versions = manifest.engines.node.match(/\d+\.\d+\.\d+/g)
  expect(versions).toEqual(['22.23.2', '24.18.1', '26.0.0'])
  expect(manualText()).toContain('your own Node: 22.23.2, 24.18.1, newer ones of these, or 26')
  for (const version of [...versions!, '22.24.0', '24.21.0', '25.0.0', '26.1.0', process.versions.node])
    expect(nodeProblem(version), version).toBeNull()
  for (const [version, first] of [
    ['22.23.1', '22.23.2'],
    ['24.18.0', '24.18.1'],
  ] as const)
    expect(nodeProblem(version)).toBe(
      `Node ${version} has known holes in TLS or HTTP: install ${first} or newer`,
    )
})
