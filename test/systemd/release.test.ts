import { execFileSync, spawnSync } from 'node:child_process'
import { appendFileSync, chmodSync, cpSync, mkdirSync, mkdtempSync, readFileSync, rmSync } from 'node:fs'
import { tmpdir } from 'node:os'
import path from 'node:path'
import { afterAll, beforeAll, describe, expect, it } from 'vitest'
import { block } from '../manual/manual.ts'
import { cloneProject } from '../support/clone.ts'
import { lacks } from '../support/lacks.ts'

// A release, verified and built again as the page says.

describe.skipIf(lacks('dpkg-deb', 'gpg', 'gpgv', 'git'))('a release', () => {
  let work: string
  let release: string
  const sh = (name: string, cwd: string): ReturnType<typeof spawnSync> =>
    spawnSync(
      'sh',
      ['-euc', block(name).code.replace('npm ci', ':').replace('npm run deb', '$& -- --compression none')],
      {
        cwd,
        encoding: 'utf8',
      },
    )
  /** A clone of what is committed, which needs no second installation. */
  function clone(name: string): string {
    const directory = path.join(work, name)
    cloneProject(directory)
    return directory
  }

  beforeAll(() => {
    work = mkdtempSync(path.join(tmpdir(), 'kyc-release-'))
    const maker = clone('maker')
    execFileSync('npm', ['run', 'deb', '--', '--compression', 'none'], { cwd: maker, stdio: 'ignore' })
    const home = path.join(work, 'gnupg')
    mkdirSync(home)
    chmodSync(home, 0o700)
    const env = { ...process.env, GNUPGHOME: home }
    for (const name of ['make-key', 'sign-release'])
      execFileSync('sh', ['-euc', block(name).code], { cwd: maker, env, stdio: 'ignore' })
    spawnSync('gpgconf', ['--kill', 'all'], { env })
    release = path.join(work, 'release')
    mkdirSync(release)
    cpSync(path.join(maker, 'kyc-tokend.gpg'), path.join(release, 'kyc-tokend.gpg'))
    for (const file of ['SHA256SUMS', 'SHA256SUMS.asc'])
      cpSync(path.join(maker, 'dist', file), path.join(release, file))
    const sums = readFileSync(path.join(release, 'SHA256SUMS'), 'utf8')
    for (const [, file = ''] of sums.matchAll(/ {2}(.*)\n/g))
      cpSync(path.join(maker, 'dist', file), path.join(release, file))
  }, 300_000)
  afterAll(() => rmSync(work, { recursive: true, force: true }))

  it('is verified by its key', () => {
    expect(sh('verify-release', release)).toMatchObject({
      status: 0,
      stdout: expect.stringMatching(/^kyc-tokend_.*\.deb: OK\nsbom\.cdx\.json: OK\n$/),
    })
  })

  it('is built again, with the same bytes', { timeout: 300_000 }, () => {
    const again = clone('again')
    cpSync(path.join(release, 'SHA256SUMS'), path.join(again, 'SHA256SUMS'))
    const { status, stdout } = sh('rebuild-release', again)
    expect(status).toBe(0)
    expect(stdout).toMatch(/\.deb: OK\nsbom\.cdx\.json: OK\n$/)
  })

  it('is not verified once a byte of it is another', () => {
    appendFileSync(path.join(release, 'sbom.cdx.json'), '\n')
    expect(sh('verify-release', release)).toMatchObject({
      status: 1,
      stdout: expect.stringContaining('sbom.cdx.json: FAILED'),
    })
    appendFileSync(path.join(release, 'SHA256SUMS'), '\n')
    expect(sh('verify-release', release).status).not.toBe(0)
  })
})
