// The Debian package of the program that the tests run.
import { execFile } from 'node:child_process'
import { readdir } from 'node:fs/promises'
import path from 'node:path'
import { promisify } from 'node:util'
import { PROGRAM } from './daemon.ts'

const script = path.resolve(import.meta.dirname, '../../systemd/build-deb.ts')

/** Packs it; the package is the only file in `out`. Without compression it takes 2 s, with gzip 10. */
export async function buildPackage(
  out: string,
  {
    version,
    compression = 'none',
    architecture = 'amd64',
  }: { version?: string; compression?: 'none' | 'gzip'; architecture?: 'amd64' | 'arm64' } = {},
): Promise<string> {
  const given = version === undefined ? [] : ['--version', version]
  const program = path.dirname(PROGRAM[1])
  await promisify(execFile)(process.execPath, [
    script,
    '--program',
    program,
    '--out',
    out,
    '--compression',
    compression,
    '--arch',
    architecture,
    ...given,
  ])
  const [file] = await readdir(out)
  return path.join(out, file!)
}
