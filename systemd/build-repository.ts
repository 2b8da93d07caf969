// Makes dist/repository/, from which apt installs: `dists/` with a signed InRelease, and `pool/` with the
// packages of `npm run deb`. Beside them SHA256SUMS of all that a release has, signed with the same key.
import { execFileSync } from 'node:child_process'
import { createHash } from 'node:crypto'
import { mkdirSync, mkdtempSync, readdirSync, readFileSync, rmSync, writeFileSync } from 'node:fs'
import { tmpdir } from 'node:os'
import path from 'node:path'
import { parseArgs } from 'node:util'

import { ARCHITECTURES } from './build/runtime.ts'
import { fail, needCommands } from './build/say.ts'

const { values: options } = parseArgs({
  options: {
    /** The secret key that signs, without a passphrase, as `gpg --export-secret-keys` writes it. */
    key: { type: 'string' },
    /** The directory with the packages. */
    packages: { type: 'string', default: 'dist' },
    /** The directory that the repository is written to; a former one there is replaced. */
    out: { type: 'string', default: 'dist/repository' },
  },
})
const CODENAME = 'stable'

if (options.key === undefined)
  fail('Name the file of the key that signs the repository: npm run repository -- --key FILE')
needCommands({ reprepro: 'reprepro', gpg: 'gnupg' })
const packages = readdirSync(options.packages)
  .filter((file) => file.endsWith('.deb'))
  .map((file) => path.resolve(options.packages, file))
if (packages.length === 0) fail(`There is no package in ${options.packages}: run \`npm run deb\` first`)

const work = mkdtempSync(path.join(tmpdir(), 'kyc-tokend-'))
const out = path.resolve(options.out)
const env = { ...process.env, GNUPGHOME: path.join(work, 'gnupg') }
try {
  mkdirSync(env.GNUPGHOME, { mode: 0o700 })
  gpg('--import', path.resolve(options.key))
  const fingerprint = /^sec:[\s\S]*?^fpr:+(\w+):/m.exec(
    gpg('--list-secret-keys', '--with-colons').toString(),
  )?.[1]
  if (fingerprint === undefined) throw new Error(`${options.key} has no secret key`)
  rmSync(out, { recursive: true, force: true })
  makeRepository(fingerprint)
  writeChecksums(fingerprint)
  // For `signed-by`.
  writeFileSync(path.join(out, 'kyc-tokend.gpg'), gpg('--export', fingerprint))
  process.stdout.write(`${out}\n`)
} finally {
  execFileSync('gpgconf', ['--kill', 'all'], { env })
  rmSync(work, { recursive: true, force: true })
}

function makeRepository(fingerprint: string): void {
  const distribution = {
    Origin: 'kyc-tokend',
    Label: 'kyc-tokend',
    Suite: CODENAME,
    Codename: CODENAME,
    Architectures: ARCHITECTURES.join(' '),
    Components: 'main',
    Description: 'Token agent for an identity-verification service',
    SignWith: fingerprint,
  }
  const conf = path.join(work, 'conf')
  mkdirSync(conf)
  const lines = Object.entries(distribution).map(([field, value]) => `${field}: ${value}\n`)
  writeFileSync(path.join(conf, 'distributions'), lines.join(''))
  const directories = ['--confdir', conf, '--dbdir', path.join(work, 'db'), '--outdir', out]
  execFileSync('reprepro', ['--silent', ...directories, 'includedeb', CODENAME, ...packages], {
    env,
    stdio: ['ignore', 'ignore', 'inherit'],
  })
}

/** Lists all that a release has, as sha256sum(1) reads it; SHA256SUMS.asc is the signature. */
function writeChecksums(fingerprint: string): void {
  const files = readdirSync(options.packages).filter((file) => /\.(deb|tgz|oci\.tar|cdx\.json)$/.test(file))
  const lines = files.toSorted().map((file) => {
    const bytes = readFileSync(path.join(options.packages, file))
    return `${createHash('sha256').update(bytes).digest('hex')}  ${file}\n`
  })
  const sums = path.join(out, 'SHA256SUMS')
  writeFileSync(sums, lines.join(''))
  gpg('--local-user', fingerprint, '--armor', '--detach-sign', sums)
}

function gpg(...args: string[]): Buffer {
  return execFileSync('gpg', ['--batch', '--quiet', ...args], { env })
}
