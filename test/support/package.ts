// The Debian packages: of the program that the tests run, and of a former version.
import { execFile } from 'node:child_process'
import { mkdirSync } from 'node:fs'
import { readdir } from 'node:fs/promises'
import path from 'node:path'
import { promisify } from 'node:util'
import { PROGRAM } from './daemon.ts'

const PROJECT = path.resolve(import.meta.dirname, '../..')
const bundle = path.dirname(PROGRAM[1])
/** A former version is built from the last commit of its own day. */
const COMMITS: Readonly<Record<string, string>> = { '2.1.0': 'ac482a3d143a80f41c124362c61a14ea9fdb26ec' }
/** Goes with the dependencies: `npm ci` removes it. */
const CACHE = path.join(PROJECT, 'node_modules/.cache/former-packages')

const BUILD_FORMER = `
commit=$1 file=$2
git -C "$0" cat-file -e "$commit^{commit}" ||
  { echo "This checkout lacks the history ($commit): git fetch --unshallow" >&2; exit 1; }
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
cd "$work"
git -C "$0" archive "$commit" | tar -x
npm ci --no-audit --no-fund --loglevel=error >/dev/null
export PATH="$PWD/node_modules/.bin:$PATH"
npm run --silent build >/dev/null
node systemd/build-deb.ts --compression none --out former >/dev/null
cp former/*.deb "$file.new"
mv "$file.new" "$file"
`

const wordsFor = (out: string, compression = 'none', architecture = 'amd64'): string[] => [
  path.join(PROJECT, 'systemd/build-deb.ts'),
  `--program=${bundle}`,
  `--out=${out}`,
  `--compression=${compression}`,
  `--arch=${architecture}`,
]

/** Packs it; the package is the only file in `out`. Without compression it takes 2 s, with gzip 10. */
export async function buildPackage(
  out: string,
  { compression, architecture }: { compression?: 'gzip'; architecture?: 'arm64' } = {},
): Promise<string> {
  await promisify(execFile)(process.execPath, wordsFor(out, compression, architecture))
  const [file] = await readdir(out)
  return path.join(out, file!)
}

/**
 * The package with this version, built once for all test files: beside the program (bundled-program.ts), or in the
 * cache where it is a former one. Throws where the commit of that one, npm or the registry is missing.
 */
export async function packageOf(version: string): Promise<string> {
  const commit = COMMITS[version]
  const packages = commit === undefined ? path.join(`${bundle}.packages`, version) : CACHE
  const file = path.join(packages, `kyc-tokend_${version}_amd64.deb`)
  mkdirSync(packages, { recursive: true })
  const build =
    commit === undefined
      ? [process.execPath, ...wordsFor(packages), '--version', version]
      : ['sh', '-euc', BUILD_FORMER, PROJECT, commit, file]
  // Test files run at once: the second waits for the first.
  await promisify(execFile)('flock', [packages, 'sh', '-c', '[ -e "$0" ] || exec "$@"', file, ...build])
  return file
}
