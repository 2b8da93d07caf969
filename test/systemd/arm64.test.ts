import { execFileSync, spawn, spawnSync } from 'node:child_process'
import { existsSync, mkdtempSync, rmSync } from 'node:fs'
import { tmpdir } from 'node:os'
import path from 'node:path'
import { afterAll, beforeAll, describe, expect, it, onTestFinished } from 'vitest'
import { lacks } from '../support/lacks.ts'
import { buildPackage } from '../support/package.ts'
import { expectUntil } from '../support/until.ts'

// The package for arm64, whose program runs in an emulator, with the libraries of Debian's cross packages.
const LIBRARIES = '/usr/aarch64-linux-gnu'
const hasLibraries = existsSync(`${LIBRARIES}/lib/libstdc++.so.6`)
if (!hasLibraries)
  process.stderr.write('The package for arm64 is not tested without libstdc++6-arm64-cross\n')
const isLeftOut = !hasLibraries || lacks('qemu-aarch64-static', 'dpkg-deb')

describe.skipIf(isLeftOut && process.env['KYC_TOKEND_REQUIRE_SYSTEMD'] !== '1')(
  'the package for arm64',
  () => {
    let work: string
    let file: string
    beforeAll(async () => {
      work = mkdtempSync(path.join(tmpdir(), 'kyc-tokend-test-'))
      file = await buildPackage(path.join(work, 'deb'), { architecture: 'arm64' })
      execFileSync('dpkg-deb', ['--extract', file, path.join(work, 'root')])
    })
    afterAll(() => {
      rmSync(work, { recursive: true, force: true })
    })

    const program = (...args: string[]): [string, string[]] => {
      const directory = path.join(work, 'root/usr/lib/kyc-tokend')
      const node = [
        '-L',
        LIBRARIES,
        path.join(directory, 'node'),
        '--jitless',
        path.join(directory, 'cli.cjs'),
      ]
      return ['qemu-aarch64-static', [...node, ...args]]
    }
    it('says so, and contains nothing for another processor', () => {
      expect(execFileSync('dpkg-deb', ['--field', file, 'Architecture'], { encoding: 'utf8' })).toBe(
        'arm64\n',
      )
      const found = execFileSync('sh', ['-c', 'find . -type f -exec file {} + | grep ELF'], {
        cwd: path.join(work, 'root'),
        encoding: 'utf8',
      })
      const lines = found.trim().split('\n')
      expect(lines).toHaveLength(2)
      for (const line of lines) expect(line).toMatch(/ARM aarch64/)
    })

    it('asks the service, and hands its files to clients', { timeout: 120_000 }, async () => {
      let printed = ''
      const demo = spawn(...program('demo'), { stdio: ['ignore', 'pipe', 'pipe'] })
      onTestFinished(() => void demo.kill('SIGKILL'))
      for (const stream of [demo.stdout, demo.stderr])
        stream.on('data', (chunk: Buffer) => (printed += chunk.toString()))
      const ended = new Promise((resolve) => demo.once('close', resolve))
      await expectUntil('a token', () => printed.includes('event=token-obtained'))
      const [, directory = ''] = / both in (\S+)\.$/m.exec(printed) ?? []
      // Only root and the daemon's user may: so koffi's native module works, which knows who asks.
      expect(spawnSync(...program('refresh', '--socket', path.join(directory, 'ipc.sock'))).status).toBe(0)
      demo.kill('SIGINT')
      expect(await ended).toBe(0)
    })
  },
)
