// The licences of what the packages contain beside our code: Node with its parts, and each library.
import { existsSync, readdirSync, readFileSync } from 'node:fs'
import path from 'node:path'

interface LockedPackage {
  readonly version?: string
  readonly license?: string
  readonly dev?: boolean
  readonly optional?: boolean
  readonly devOptional?: boolean
}

/** One text, with the name and version of each library; `project` is the folder of package.json. */
export function notices(project: string, nodePackage: string): string {
  const { packages } = JSON.parse(readFileSync(path.join(project, 'package-lock.json'), 'utf8')) as {
    packages: Record<string, LockedPackage>
  }
  const libraries = Object.entries(packages)
    .filter(([folder, { dev, optional, devOptional }]) => folder !== '' && !dev && !optional && !devOptional)
    .filter(([folder]) => existsSync(path.join(project, folder)))
    .map(([folder, { version = '', license = 'unknown' }]) => {
      const name = folder.replace(/^.*node_modules\//, '')
      const file = readdirSync(path.join(project, folder)).find((entry) => /^licen[cs]e/i.test(entry))
      const text =
        file === undefined ? `Licence: ${license}\n` : readFileSync(path.join(project, folder, file), 'utf8')
      return section(`${name} ${version}`, text)
    })
  const node = section(
    'Node.js (/usr/lib/kyc-tokend/node), from https://nodejs.org/',
    readFileSync(path.join(nodePackage, 'LICENSE'), 'utf8'),
  )
  return [node, ...libraries].join('\n')
}

function section(title: string, text: string): string {
  return `${'='.repeat(78)}\n${title}\n\n${text}`
}
