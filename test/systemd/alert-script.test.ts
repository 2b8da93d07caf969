import { spawnSync } from 'node:child_process'
import { mkdir, readFile, rm, writeFile } from 'node:fs/promises'
import path from 'node:path'
import { beforeEach, describe, expect, it } from 'vitest'
import { tempDirectory } from '../support/temp-directory.ts'

// The script of kyc-tokend-alert.service with an operator's command that writes down what it is run for.
let work: string
let runtime: string

beforeEach(async () => {
  work = await tempDirectory()
  runtime = path.join(work, 'run')
  await mkdir(runtime)
  await mkdir(path.join(work, 'own'))
  const script = await readFile(new URL('../../systemd/alert.sh', import.meta.url), 'utf8')
  await writeFile(
    path.join(work, 'alert'),
    script
      .replace('/etc/kyc-tokend/alert-command', path.join(work, 'command'))
      .replace('pace=30', 'pace=0.05'),
    { mode: 0o755 },
  )
  await command('')
})

/** The operator's command: writes down its argument and the alert, and then does this. */
async function command(then: string): Promise<void> {
  const text = `#!/bin/sh\ncd ${work}\nprintf '%s %s' "$1" "$(cat)" >>calls; echo >>calls\n${then}\n`
  await writeFile(path.join(work, 'command'), text, { mode: 0o755 })
}

const daemonWrites = (content: object): Promise<void> =>
  writeFile(path.join(runtime, 'alert.json'), `${JSON.stringify(content)}\n`)

const RESOLVED = { state: 'resolved', by: 'token' }

/** Runs it, with the programs of this directory before those of the system. */
function run(programs = '/nowhere'): { status: number | null; stdout: string; stderr: string } {
  const { status, stdout, stderr } = spawnSync(path.join(work, 'alert'), [runtime], {
    // A script that repeats without an end fails its test.
    timeout: 60_000,
    encoding: 'utf8',
    env: { PATH: `${programs}:${process.env['PATH']}`, RUNTIME_DIRECTORY: path.join(work, 'own') },
  })
  return { status, stdout, stderr }
}

const quietly = { status: 0, stdout: '', stderr: '' }

/** The calls of the command since the last time that this was asked. */
async function calls(): Promise<string[]> {
  const file = path.join(work, 'calls')
  const text = await readFile(file, 'utf8').catch(() => '')
  await rm(file, { force: true })
  return text.match(/.+/g) ?? []
}

describe('the script that runs the operator’s command', () => {
  it('runs it once for an alert, for each reminder, and for the end', async () => {
    await daemonWrites({ reason: 'rejected' })
    expect([run(), run()]).toEqual([quietly, quietly])
    expect(await calls()).toEqual(['raised {"reason":"rejected"}'])
    await daemonWrites({ reason: 'rejected', remindedAt: 'later' })
    run()
    expect(await calls()).toEqual(['raised {"reason":"rejected","remindedAt":"later"}'])
    await daemonWrites(RESOLVED)
    expect([run(), run()]).toEqual([quietly, quietly])
    expect(await calls()).toEqual([`resolved ${JSON.stringify(RESOLVED)}`])
    // A minute later the daemon removes it.
    await rm(path.join(runtime, 'alert.json'))
    expect(run()).toEqual(quietly)
    expect(await calls()).toEqual([])
  })

  it('runs it again until it succeeds, and says once that it fails', async () => {
    await daemonWrites({ reason: 'rejected' })
    await command('echo "$1 does not work"; echo more >&2; [ "$(wc -l <calls)" -ge 4 ] || exit 3')
    // The script finds it before that of the system.
    const sleep = `#!/bin/sh\necho "$1" >>${work}/pauses\n`
    await writeFile(path.join(work, 'sleep'), sleep, { mode: 0o755 })
    expect(run(work)).toEqual({
      status: 0,
      stdout:
        'raised does not work\n<3>The alert command failed (exit status 3) and is run again every 0.05 s\n',
      stderr: 'more\n',
    })
    expect(await calls()).toEqual(Array(4).fill('raised {"reason":"rejected"}'))
    expect(await readFile(path.join(work, 'pauses'), 'utf8')).toBe('0.05\n'.repeat(3))
  })

  it('loses no change that comes while it runs', async () => {
    await command(`[ -e done ] || { touch done; echo '${JSON.stringify(RESOLVED)}' >run/alert.json; }`)
    await daemonWrites({ reason: 'first' })
    expect(run()).toEqual(quietly)
    expect(await calls()).toEqual(['raised {"reason":"first"}', `resolved ${JSON.stringify(RESOLVED)}`])
  })

  it('takes an alert that is gone for resolved, of whose end the daemon says nothing', async () => {
    await daemonWrites({ reason: 'first' })
    run()
    await rm(path.join(runtime, 'alert.json'))
    expect([run(), run()]).toEqual([quietly, quietly])
    expect(await calls()).toEqual(['raised {"reason":"first"}', 'resolved {"reason":"first"}'])
  })

  it.each([
    ['a FIFO', 'mkfifo alert.json'],
    ['a link to a device without an end', 'ln -s /dev/zero alert.json'],
  ])('ends where the daemon’s user has put %s', async (_, make) => {
    const script = path.join(work, 'alert')
    await writeFile(script, (await readFile(script, 'utf8')).replace('timeout 10', 'timeout 1'))
    spawnSync('sh', ['-c', make], { cwd: runtime })
    await command('exit 0')
    expect(run()).toMatchObject({ status: 0 })
  })

  it('logs an alert where there is no command', async () => {
    await rm(path.join(work, 'command'))
    await daemonWrites({ reason: 'rejected' })
    expect(run().stdout).toBe('<5>The alert is raised: {"reason":"rejected"}\n')
  })
})
