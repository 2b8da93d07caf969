// The Debian packages that former versions built, from their own commits: once, for all test files.
import { execFileSync, spawn } from 'node:child_process'
import { existsSync, mkdirSync, mkdtempSync, readdirSync, renameSync, rmSync } from 'node:fs'
import { tmpdir } from 'node:os'
import path from 'node:path'

/** The last commit of the version's own day. */
const COMMITS = {
  '2.1.0': 'ac482a3d143a80f41c124362c61a14ea9fdb26ec',
} as const
export type FormerVersion = keyof typeof COMMITS

const PROJECT = path.resolve(import.meta.dirname, '../..')
/** Goes with the dependencies: `npm ci` removes it. */
const CACHE = path.join(PROJECT, 'node_modules/.cache/former-packages')

/** Builds it, or takes it from a former call. Throws where the commit, npm or the registry is missing. */
export async function formerPackage(version: FormerVersion): Promise<string> {
  const file = path.join(CACHE, `kyc-tokend_${version}_amd64.deb`)
  mkdirSync(CACHE, { recursive: true })
  // Test files run at once: the second waits for the first.
  const words = [path.join(CACHE, 'lock'), process.execPath, import.meta.filename, version]
  const child = spawn('flock', words, { stdio: ['ignore', 'ignore', 'pipe'] })
  let said = ''
  child.stderr.on('data', (chunk: Buffer) => (said += chunk.toString()))
  const status = await new Promise<number | null>((resolve, reject) => {
    child.once('error', reject)
    child.once('close', resolve)
  })
  if (status !== 0) throw new Error(`The package of ${version} cannot be built: ${said}`)
  return file
}

function build(version: FormerVersion): void {
  const name = `kyc-tokend_${version}_amd64.deb`
  if (existsSync(path.join(CACHE, name))) return
  mkdirSync(CACHE, { recursive: true })
  const commit = COMMITS[version]
  const work = mkdtempSync(path.join(tmpdir(), 'kyc-tokend-former-'))
  const run = (words: readonly string[], cwd = work): void => {
    execFileSync(words[0]!, words.slice(1), { cwd, stdio: ['ignore', 'ignore', 'pipe'] })
  }
  try {
    try {
      run(['git', 'cat-file', '-e', `${commit}^{commit}`], PROJECT)
    } catch {
      throw new Error(`This checkout lacks the history (${commit}): git fetch --unshallow`)
    }
    run(['sh', '-euc', `git -C "$0" archive ${commit} | tar -x`, PROJECT])
    run(['npm', 'ci', '--no-audit', '--no-fund', '--loglevel=error'])
    const env = [`PATH=${path.join(work, 'node_modules/.bin')}:${process.env['PATH']}`]
    run(['env', ...env, 'npm', 'run', '--silent', 'build'])
    run(['env', ...env, 'node', 'systemd/build-deb.ts', '--compression', 'none', '--out', 'former'])
    const built = path.join(work, 'former', readdirSync(path.join(work, 'former'))[0]!)
    run(['cp', built, path.join(CACHE, `${name}.new`)])
    renameSync(path.join(CACHE, `${name}.new`), path.join(CACHE, name))
  } finally {
    rmSync(work, { recursive: true, force: true })
  }
}

if (process.argv[1] === import.meta.filename) build(process.argv[2] as FormerVersion)
