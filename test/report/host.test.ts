import { execFileSync } from 'node:child_process'
import { mkdtempSync, rmSync, writeFileSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { describe, expect, it, onTestFinished } from 'vitest'

import { hostFindings } from '../../src/report/host.ts'
import { lacks } from '../support/lacks.ts'

const module = new URL('../../src/report/host.ts', import.meta.url).href
const isRoot = process.getuid!() === 0

describe('the host', () => {
  it.skipIf(!isRoot || lacks('unshare', 'ip', 'hostname', 'timedatectl'))(
    'is checked by clock, network, disk and memory',
    () => {
      const directory = mkdtempSync(join(tmpdir(), 'host-'))
      onTestFinished(() => rmSync(directory, { recursive: true }))
      const program = `import { hostFindings } from ${JSON.stringify(module)}
        const options = { directories: ['/tmp'], isServiceLocal: false, nowMs: Date.now() }
        const findings = await hostFindings(options)
        console.log(findings.map(({ level, sentence }) => level + ' ' + sentence).join('\\n'))
        process.exit()`
      const link =
        'ip link add d0 type veth peer name d1; ip addr add 192.0.2.7/24 dev d0; ip link set d0 up; ip link set d1 up; ip route add default via 192.0.2.1'
      for (const [setup, isSynchronised, clock, network] of [
        [
          ':',
          'no',
          'warning the clock is not synchronised: switch that on (timedatectl set-ntp true)',
          'warning no network interface is up, so the service cannot be reached: connect the host',
        ],
        [link, 'yes', 'ok the clock says 2', 'ok the network leads out by d0'],
      ] as const) {
        const timedatectl = `#!/bin/sh\ntest "$*" = 'show --property=NTPSynchronized --value' && echo ${isSynchronised}\n`
        writeFileSync(join(directory, 'timedatectl'), timedatectl, { mode: 0o755 })
        const inside = `hostname localhost; mount --bind ${directory}/timedatectl /usr/bin/timedatectl
          ip link set lo up; ${setup}; exec "$@"`
        const node = [process.execPath, '--input-type=module', '-e', program]
        const words = ['--mount', '--uts', '--net', 'sh', '-ec', inside, 'sh', ...node]
        const printed = execFileSync('unshare', words, { encoding: 'utf8', timeout: 20_000 })
        expect(printed.trimEnd().split('\n')).toEqual([
          expect.stringContaining(clock),
          network,
          expect.stringMatching(/ the file system of \/tmp has /),
          expect.stringMatching(/^ok \d+ [MG]iB of memory are free$/),
        ])
      }
    },
  )

  it('needs no network where the service is on it, and is at fault with a clock that was never set', async () => {
    const findings = await hostFindings({ directories: ['/proc'], isServiceLocal: true, nowMs: 86_400_000 })
    const clock =
      'the clock says 1970-01-02T00:00:00.000Z, which is long past: set it (timedatectl set-ntp true)'
    const memory = {
      level: 'ok',
      sentence: expect.stringMatching(/^\d+ [MG]iB of memory are free$/) as string,
    }
    expect(findings).toEqual([{ level: 'fault', sentence: clock }, memory])
  })

  it.runIf(isRoot)('is at fault with a file system that is full, and warned with little left', async () => {
    const directory = mkdtempSync(join(tmpdir(), 'host-'))
    onTestFinished(() => rmSync(directory, { recursive: true }))
    execFileSync('mount', ['-t', 'tmpfs', '-o', 'size=1m', 'tmpfs', directory])
    onTestFinished(() => {
      execFileSync('umount', [directory])
    })
    const check = () =>
      hostFindings({ directories: [join(directory, 'later')], isServiceLocal: true, nowMs: Date.now() })
    const name = `the file system of ${directory}`
    for (const [size, level, words] of [
      ['10g', 'ok', 'has 10 GiB left'],
      ['10m', 'ok', 'has 10 MiB left'],
      ['10m,nr_inodes=1', 'fault', 'has no inode left: remove files that are not needed'],
      ['1m,nr_inodes=99', 'warning', 'has only 1024 KiB left: free space on it'],
    ]) {
      execFileSync('mount', ['-o', `remount,size=${size}`, directory])
      expect(await check()).toContainEqual({ level, sentence: `${name} ${words}` })
    }
    execFileSync('dd', ['if=/dev/zero', `of=${join(directory, 'x')}`, 'bs=1k', 'count=900'], {
      stdio: 'ignore',
    })
    expect(await check()).toContainEqual({
      level: 'fault',
      sentence: `${name} is full: free space on it`,
    })
  })
})
