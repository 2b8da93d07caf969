import { execFileSync, spawnSync } from 'node:child_process'
import { existsSync } from 'node:fs'
import path from 'node:path'
import { expect, onTestFinished, test } from 'vitest'
import { lacks } from '../support/lacks.ts'
import { buildPackage } from '../support/package.ts'
import { startProgram } from '../support/run-cli.ts'
import { tempDirectory } from '../support/temp-directory.ts'
import { expectUntil } from '../support/until.ts'

// The package for arm64, whose program runs in an emulator, with the libraries of Debian's cross packages.
const LIBRARIES = '/usr/aarch64-linux-gnu'
const hasLibraries = existsSync(`${LIBRARIES}/lib/libstdc++.so.6`)
if (!hasLibraries)
  process.stderr.write('The package for arm64 is not tested without libstdc++6-arm64-cross\n')
const isLeftOut = !hasLibraries || lacks('qemu-aarch64-static', 'dpkg-deb')

test.skipIf(isLeftOut && process.env['KYC_TOKEND_REQUIRE_SYSTEMD'] !== '1')(
  'the package for arm64 contains nothing for another processor, asks the service, and hands its files to clients',
  { timeout: 120_000 },
  async () => {
    const work = await tempDirectory()
    const root = path.join(work, 'root')
    const file = await buildPackage(path.join(work, 'deb'), { architecture: 'arm64' })
    execFileSync('dpkg-deb', ['--extract', file, root])
    expect(execFileSync('dpkg-deb', ['--field', file, 'Architecture']).toString()).toBe('arm64\n')
    const find = 'find . -type f -exec file {} + | grep ELF'
    const binaries = execFileSync('sh', ['-c', find], { cwd: root }).toString().trim().split('\n')
    expect(binaries).toHaveLength(2)
    for (const binary of binaries) expect(binary).toMatch(/ARM aarch64/)

    const directory = path.join(root, 'usr/lib/kyc-tokend')
    const node = ['qemu-aarch64-static', '-L', LIBRARIES, path.join(directory, 'node'), '--jitless']
    const program = [...node, path.join(directory, 'cli.cjs')]
    const demo = startProgram([...program, 'demo'])
    onTestFinished(() => void demo.child.kill('SIGKILL'))
    const printed = (): string => demo.stdout() + demo.stderr()
    await expectUntil('a token', () => printed().includes('event=token-obtained'))
    const [, own = ''] = / both in (\S+)\.$/m.exec(printed()) ?? []
    // Only root and the daemon's user may: so koffi's native module works, which knows who asks.
    const refresh = [...program, 'refresh', '--socket', path.join(own, 'ipc.sock')]
    expect(spawnSync(refresh[0]!, refresh.slice(1)).status).toBe(0)
    demo.child.kill('SIGINT')
    expect((await demo.ended).status).toBe(0)
  },
)
