import { spawnSync } from 'node:child_process'
import { createHash } from 'node:crypto'
import { mkdtemp, readFile, rm, writeFile } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import path from 'node:path'
import { afterAll, beforeAll, describe, expect, it } from 'vitest'
import { commands } from '../../src/commands/catalogue.ts'
import { settingRows } from '../../src/config/schema.ts'
import { manualPages } from '../../systemd/man/pages.ts'
import { buildPackage } from '../support/package.ts'
import { tempDirectory } from '../support/temp-directory.ts'

const isThere = (tool: string): boolean => spawnSync('sh', ['-c', `command -v ${tool}`]).status === 0

describe.runIf(isThere('dpkg-deb') && isThere('strip'))('the Debian package', () => {
  let place: string
  let file: string
  beforeAll(async () => {
    place = await mkdtemp(path.join(tmpdir(), 'kyc-tokend-test-'))
    file = await buildPackage(place, { compression: 'gzip' })
  }, 120_000)
  afterAll(async () => {
    await rm(place, { recursive: true, force: true })
  })

  it('contains all of the program, and nothing that others could write', () => {
    const lines = spawnSync('dpkg-deb', ['--contents', file], { encoding: 'utf8' }).stdout.trim().split('\n')
    for (const entry of lines) expect(entry).toMatch(/^([-d]rwxr-xr-x|-rw-r--r--) root\/root /)
    const files = lines.map((line) => line.split(' ').at(-1))
    for (const needed of [
      './usr/bin/kyc-tokend',
      './usr/lib/kyc-tokend/node',
      './usr/lib/kyc-tokend/cli.cjs',
      './usr/lib/kyc-tokend/client.js',
      './usr/lib/systemd/system/kyc-tokend.service',
      './usr/share/doc/kyc-tokend/copyright',
      './usr/share/doc/kyc-tokend/examples/kyc-tokend.config.json',
      './usr/share/man/man8/kyc-tokend.8.gz',
      './usr/share/bash-completion/completions/kyc-tokend',
    ])
      expect(files).toContain(needed)
  })

  it.runIf(isThere('lintian'))('is without errors and warnings for lintian', { timeout: 300_000 }, () => {
    const { status, stdout } = spawnSync('lintian', ['--fail-on', 'error,warning', file], {
      encoding: 'utf8',
    })
    expect({ status, stdout }).toEqual({ status: 0, stdout: '' })
  })

  it('is the same, byte for byte, when it is built again', { timeout: 60_000 }, async () => {
    const builds = await Promise.all(['a', 'b'].map(async (name) => buildPackage(path.join(place, name), {})))
    const [one, other] = await Promise.all(builds.map(async (build) => hashOf(build)))
    expect(one).toBe(other)
  })
})

describe('the manual pages', () => {
  const pages = manualPages('1.0.0', new Date(0))

  it.runIf(isThere('man'))('are well formed', async () => {
    const folder = await tempDirectory()
    for (const { name, section, text } of pages) {
      const page = path.join(folder, `${name}.${section}`)
      await writeFile(page, text)
      const { status, stderr } = spawnSync('man', ['--warnings', '-l', page], {
        encoding: 'utf8',
        env: { ...process.env, LC_ALL: 'C.UTF-8', MANWIDTH: '80' },
      })
      expect({ page, status, stderr }).toEqual({ page, status: 0, stderr: '' })
    }
  })

  it('tell every command, every option and every setting', () => {
    const textOf = (section: number): string =>
      (pages.find((page) => page.section === section)?.text ?? '').replaceAll('\\-', '-')
    for (const { name, options } of commands) {
      expect(textOf(1)).toContain(`.It Cm ${name}\n`)
      for (const option of Object.keys(options)) expect(textOf(1)).toContain(`.It Fl -${option}`)
    }
    for (const { key } of settingRows()) expect(textOf(5)).toContain(`.It Va ${key}\n`)
    for (const { text } of pages) expect(text).not.toMatch(/@[A-Z]+@/)
  })
})

async function hashOf(build: string): Promise<string> {
  return createHash('sha256')
    .update(await readFile(build))
    .digest('hex')
}
