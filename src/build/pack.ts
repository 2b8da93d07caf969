// Makes dist/kyc-tokend-VERSION.tgz, the package for others: the result of `npm run build`, and no tools of this project.
import { spawnSync } from 'node:child_process'
import { cpSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { libraryNotices } from './notices.ts'

const CONTENTS = [
  'dist',
  'kyc-tokend.config.example.json',
  'systemd/man',
  'README.md',
  'CHANGELOG.md',
  'LICENSE',
]
/** The libraries are in the bundle, and nothing is to be installed or run beside the client. */
const ONLY_HERE = ['private', 'scripts', 'dependencies', 'devDependencies', 'optionalDependencies']

const { optionalDependencies, ...description } = JSON.parse(readFileSync('package.json', 'utf8')) as Record<
  string,
  unknown
> & { optionalDependencies: Record<string, string> }
for (const field of ONLY_HERE) delete description[field]
// The daemon alone needs native code, and its user installs that: npm adds optional peers to no project by itself.
description['peerDependencies'] = { koffi: optionalDependencies['koffi'] }
description['peerDependenciesMeta'] = { koffi: { optional: true } }
description['files'] = [...CONTENTS, 'THIRD-PARTY-LICENSES']

const directory = mkdtempSync(join(tmpdir(), 'kyc-tokend-pack-'))
try {
  for (const path of CONTENTS) {
    cpSync(path, join(directory, path), {
      recursive: true,
      filter: (file) => !/(\.(deb|tgz|tar)|\/man\/.*\.ts)$/.test(file),
    })
  }
  writeFileSync(join(directory, 'THIRD-PARTY-LICENSES'), libraryNotices('.'))
  writeFileSync(join(directory, 'package.json'), `${JSON.stringify(description, null, 2)}\n`)
  const packed = spawnSync('npm', ['pack', '--pack-destination', join(process.cwd(), 'dist')], {
    cwd: directory,
    stdio: ['ignore', 'inherit', 'inherit'],
  })
  process.exitCode = packed.status ?? 1
} finally {
  rmSync(directory, { recursive: true, force: true })
}
