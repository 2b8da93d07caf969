import { execFileSync } from 'node:child_process'
import { mkdtempSync, rmSync } from 'node:fs'
import { hostname, tmpdir } from 'node:os'
import { join } from 'node:path'
import { describe, expect, it, onTestFinished } from 'vitest'

import { createHostName, hostFindings } from '../../src/report/host.ts'

describe('the host', () => {
  it('has a name', () => {
    expect(createHostName().current()).toBe(hostname())
  })

  it('is checked by clock, network, disk and memory', async () => {
    const findings = await hostFindings({ directories: [tmpdir()], isServiceLocal: false, nowMs: Date.now() })
    const reported = findings.map(({ sentence }) => sentence).join('\n')
    expect(reported).toMatch(/the clock (says|is not synchronised)/)
    expect(reported).toMatch(/the network leads out by|default route|no network interface/)
    expect(reported).toContain(`the file system of ${tmpdir()}`)
    expect(reported).toMatch(/of memory are free/)
  })

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

  it.runIf(process.getuid!() === 0)(
    'is at fault with a file system that is full, and warned with little left',
    async () => {
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
    },
  )
})
