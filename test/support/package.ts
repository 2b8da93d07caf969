// The Debian package of the sources as they are now.
import { execFile } from 'node:child_process'
import { readdir } from 'node:fs/promises'
import path from 'node:path'
import { promisify } from 'node:util'

const execute = promisify(execFile)
const project = path.resolve(import.meta.dirname, '../..')

/** Builds the program, which its packages then contain. */
export async function buildProgram(): Promise<void> {
  await execute('npm', ['run', '--silent', 'build'], { cwd: project })
}

/** Packs it; the package is the only file in `out`. Without compression it takes 2 s, with gzip 10. */
export async function buildPackage(
  out: string,
  { version, compression = 'none' }: { version?: string; compression?: 'none' | 'gzip' } = {},
): Promise<string> {
  const given = version === undefined ? [] : ['--version', version]
  const script = path.join(project, 'systemd/build-deb.ts')
  await execute(process.execPath, [script, '--out', out, '--compression', compression, ...given])
  const [file] = await readdir(out)
  return path.join(out, file!)
}
