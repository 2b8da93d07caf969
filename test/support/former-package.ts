// The Debian packages that former versions built, from their own commits: once, for all test files.
import { execFile } from 'node:child_process'
import { mkdirSync } from 'node:fs'
import path from 'node:path'
import { promisify } from 'node:util'

/** The last commit of the version's own day. */
const COMMITS = {
  '2.1.0': 'ac482a3d143a80f41c124362c61a14ea9fdb26ec',
} as const
export type FormerVersion = keyof typeof COMMITS

const PROJECT = path.resolve(import.meta.dirname, '../..')
/** Goes with the dependencies: `npm ci` removes it. */
const CACHE = path.join(PROJECT, 'node_modules/.cache/former-packages')

const BUILD_SCRIPT = `
commit=$1 file=$2
[ ! -e "$file" ] || exit 0
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

/** Builds it, or takes it from a former call. Throws where the commit, npm or the registry is missing. */
export async function formerPackage(version: FormerVersion): Promise<string> {
  const file = path.join(CACHE, `kyc-tokend_${version}_amd64.deb`)
  mkdirSync(CACHE, { recursive: true })
  // Test files run at once: the second waits for the first.
  const words = [path.join(CACHE, 'lock'), 'sh', '-euc', BUILD_SCRIPT, PROJECT, COMMITS[version], file]
  await promisify(execFile)('flock', words)
  return file
}
