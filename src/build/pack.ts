// Makes dist/kyc-tokend-VERSION.tgz, the client's package for other projects, from the output of `npm run
// build`. It does not contain the daemon.
import { spawnSync } from 'node:child_process'
import { cpSync, mkdtempDisposableSync, readFileSync, writeFileSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'

const CONTENTS = {
  'dist/client.js': 'dist/client.js',
  'dist/client.cjs': 'dist/client.cjs',
  'dist/types': 'dist/types',
  'src/client/README.md': 'README.md',
  LICENSE: 'LICENSE',
}

const { name, version, license, type, exports } = JSON.parse(readFileSync('package.json', 'utf8')) as {
  [field: string]: unknown
  exports: Record<string, unknown>
}
// The schema is of the daemon's configuration.
const { './schema.json': _, ...entryPoints } = exports
const manifest = {
  name,
  version,
  description: 'Client of kyc-tokend, the local token agent for an identity-verification service',
  license,
  type,
  engines: { node: '>=18' },
  exports: entryPoints,
  files: ['dist'],
  sideEffects: false,
}

using directory = mkdtempDisposableSync(join(tmpdir(), 'kyc-tokend-pack-'))
for (const [from, to] of Object.entries(CONTENTS)) cpSync(from, join(directory.path, to), { recursive: true })
writeFileSync(join(directory.path, 'package.json'), `${JSON.stringify(manifest, null, 2)}\n`)
const packed = spawnSync('npm', ['pack', '--pack-destination', join(process.cwd(), 'dist')], {
  cwd: directory.path,
  stdio: ['ignore', 'inherit', 'inherit'],
})
process.exitCode = packed.status ?? 1
