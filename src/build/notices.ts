// The licence texts of the libraries that are in the bundle.
import { existsSync, readdirSync, readFileSync } from 'node:fs'
import { join } from 'node:path'

interface LockedPackage {
  readonly version?: string
  readonly license?: string
  readonly dev?: boolean
  readonly optional?: boolean
  readonly devOptional?: boolean
}

/** One text of all licences, with the name and version of each library; `project` is the folder of package.json. */
export function libraryNotices(project: string): string {
  const { packages } = JSON.parse(readFileSync(join(project, 'package-lock.json'), 'utf8')) as {
    packages: Record<string, LockedPackage>
  }
  return Object.entries(packages)
    .filter(([path, { dev, optional, devOptional }]) => path !== '' && !dev && !optional && !devOptional)
    .filter(([path]) => existsSync(join(project, path)))
    .map(([path, { version = '', license = 'unknown' }]) => {
      const name = path.replace(/^.*node_modules\//, '')
      const file = readdirSync(join(project, path)).find((entry) => /^licen[cs]e/i.test(entry))
      const text =
        file === undefined ? `Licence: ${license}\n` : readFileSync(join(project, path, file), 'utf8')
      return `${'='.repeat(78)}\n${name} ${version}\n\n${text}`
    })
    .join('\n')
}
