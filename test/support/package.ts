// The Debian package of the program that the tests run.
import { execFile } from 'node:child_process'
import { mkdirSync } from 'node:fs'
import { readdir } from 'node:fs/promises'
import path from 'node:path'
import { promisify } from 'node:util'
import { PROGRAM } from './daemon.ts'

const script = path.resolve(import.meta.dirname, '../../systemd/build-deb.ts')
const bundle = path.dirname(PROGRAM[1])
const wordsFor = (out: string, compression: string, architecture: string): string[] => [
  script,
  `--program=${bundle}`,
  `--out=${out}`,
  `--compression=${compression}`,
  `--arch=${architecture}`,
]

/** Packs it; the package is the only file in `out`. Without compression it takes 2 s, with gzip 10. */
export async function buildPackage(
  out: string,
  {
    compression = 'none',
    architecture = 'amd64',
  }: { compression?: 'none' | 'gzip'; architecture?: 'amd64' | 'arm64' } = {},
): Promise<string> {
  await promisify(execFile)(process.execPath, wordsFor(out, compression, architecture))
  const [file] = await readdir(out)
  return path.join(out, file!)
}

/** The package with this version: built once in a run of the tests, beside the program (bundled-program.ts). */
export async function packageOf(version: string): Promise<string> {
  const packages = path.join(`${bundle}.packages`, version)
  const file = path.join(packages, `kyc-tokend_${version}_amd64.deb`)
  mkdirSync(packages, { recursive: true })
  // Test files run at once: the second waits for the first.
  const build = [process.execPath, ...wordsFor(packages, 'none', 'amd64'), '--version', version]
  const unlessBuilt = ['sh', '-c', '[ -e "$0" ] || exec "$@"', file]
  await promisify(execFile)('flock', [packages, ...unlessBuilt, ...build])
  return file
}
