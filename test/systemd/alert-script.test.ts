import { spawnSync } from 'node:child_process'
import { existsSync } from 'node:fs'
import { chmod, mkdir, readFile, rename, rm, utimes, writeFile } from 'node:fs/promises'
import path from 'node:path'
import { beforeEach, describe, expect, it } from 'vitest'
import { tempDirectory } from '../support/temp-directory.ts'

// The script of kyc-tokend-alert.service with an operator's command that writes down what it is run for.
let work: string
let runtime: string
let seconds = 1_000_000_000

beforeEach(async () => {
  work = await tempDirectory()
  runtime = path.join(work, 'run')
  await mkdir(runtime)
  await mkdir(path.join(work, 'own'))
  const script = await readFile(new URL('../../systemd/alert.sh', import.meta.url), 'utf8')
  await writeFile(
    path.join(work, 'alert'),
    script.replace('/etc/kyc-tokend/alert-command', path.join(work, 'command')),
    { mode: 0o755 },
  )
  await command('')
})

/** The operator's command: writes down its argument and the alert, and then does this. */
async function command(then: string): Promise<void> {
  const text = `#!/bin/sh\ncd ${work}\nprintf '%s %s' "$1" "$(cat)" >>calls; echo >>calls\n${then}\n`
  await writeFile(path.join(work, 'command'), text, { mode: 0o755 })
}

/** A file of the daemon, as it writes it: renamed into its work, each one later than the one before. */
async function daemonWrites(name: string, content: object): Promise<void> {
  const file = path.join(runtime, `${name}.json`)
  await writeFile(`${file}.new`, `${JSON.stringify(content)}\n`)
  seconds += 1
  await utimes(`${file}.new`, seconds, seconds)
  await rename(`${file}.new`, file)
}

async function daemonResolves(content: object): Promise<void> {
  await daemonWrites('alert-resolved', content)
  await rm(path.join(runtime, 'alert.json'))
}

it('says how to have a command run that may not be run, and ends as one that failed', async () => {
  await chmod(path.join(work, 'command'), 0o644)
  expect(run()).toBe(0)
  await daemonWrites('alert', { reason: 'account-inactive' })
  const { status, stdout } = spawnSync(path.join(work, 'alert'), [runtime], {
    encoding: 'utf8',
    env: { PATH: process.env['PATH'], RUNTIME_DIRECTORY: path.join(work, 'own') },
  })
  expect(stdout).toBe(
    `<3>The alert command cannot be run by this unit: sudo chmod 755 ${path.join(work, 'command')}\n`,
  )
  expect(status).toBe(126)
  await chmod(path.join(work, 'command'), 0o755)
  expect(run()).toBe(0)
  expect(await calls()).toEqual([expect.stringContaining('raised')])
})

function run(): number | null {
  const { status, stderr } = spawnSync(path.join(work, 'alert'), [runtime], {
    encoding: 'utf8',
    env: { PATH: process.env['PATH'], RUNTIME_DIRECTORY: path.join(work, 'own') },
  })
  expect(stderr).toBe('')
  return status
}

/** The calls of the command since the last time that this was asked. */
async function calls(): Promise<string[]> {
  const file = path.join(work, 'calls')
  if (!existsSync(file)) return []
  const text = await readFile(file, 'utf8')
  await rm(file)
  return text.trim().split('\n')
}

describe('the script that runs the operator’s command', () => {
  it('runs it once for an alert, for each reminder, and for the end', async () => {
    await daemonWrites('alert', { reason: 'rejected' })
    expect([run(), run()]).toEqual([0, 0])
    expect(await calls()).toEqual(['raised {"reason":"rejected"}'])
    await daemonWrites('alert', { reason: 'rejected', remindedAt: 'later' })
    run()
    expect(await calls()).toEqual(['raised {"reason":"rejected","remindedAt":"later"}'])
    await daemonResolves({ reason: 'rejected', by: 'token' })
    expect([run(), run()]).toEqual([0, 0])
    expect(await calls()).toEqual(['resolved {"reason":"rejected","by":"token"}'])
  })

  it('does not run it again when the daemon writes the same alert at its start', async () => {
    await daemonWrites('alert', { reason: 'rejected' })
    run()
    await daemonWrites('alert', { reason: 'rejected' })
    run()
    expect(await calls()).toHaveLength(1)
  })

  it('runs it again for what it failed for', async () => {
    await command('exit 3')
    await daemonWrites('alert', { reason: 'rejected' })
    expect([run(), run()]).toEqual([3, 3])
    await command('')
    expect([run(), run()]).toEqual([0, 0])
    expect(await calls()).toEqual(Array(3).fill('raised {"reason":"rejected"}'))
    await command('exit 3')
    await daemonResolves({ by: 'token' })
    expect(run()).toBe(3)
    await command('')
    expect([run(), run()]).toEqual([0, 0])
    expect(await calls()).toEqual(Array(2).fill('resolved {"by":"token"}'))
  })

  it('loses no change that comes while it runs', async () => {
    const resolved = `echo '{"by":"token"}' >${work}/run/alert-resolved.json`
    const raised = `sleep 0.02; echo '{"reason":"second"}' >${work}/run/alert.json`
    await command(`[ -e done ] || { touch done; rm run/alert.json; ${resolved}; ${raised}; }`)
    await daemonWrites('alert', { reason: 'first' })
    expect(run()).toBe(0)
    expect(await calls()).toEqual([
      'raised {"reason":"first"}',
      'resolved {"by":"token"}',
      'raised {"reason":"second"}',
    ])
  })

  it('says which alert is over where the daemon did not', async () => {
    await daemonWrites('alert', { reason: 'rejected' })
    run()
    await rm(path.join(runtime, 'alert.json'))
    run()
    expect((await calls()).at(-1)).toBe('resolved {"reason":"rejected"}')
  })

  it('does not take the end of an earlier alert for that of this one', async () => {
    await daemonWrites('alert', { reason: 'first' })
    run()
    await daemonResolves({ reason: 'first' })
    run()
    await daemonWrites('alert', { reason: 'first' })
    expect([run(), run()]).toEqual([0, 0])
    expect(await calls()).toEqual([
      'raised {"reason":"first"}',
      'resolved {"reason":"first"}',
      'raised {"reason":"first"}',
    ])
  })

  it('runs nothing for an alert of another host, unless the words are only in a text of the service', async () => {
    await daemonWrites('alert', { reason: 'rejected', askedBy: 'web-7' })
    run()
    await daemonResolves({ reason: 'rejected', askedBy: 'web-7' })
    run()
    expect(await calls()).toEqual([])
    await daemonWrites('alert', { reason: 'rejected', askedBy: null, detail: '"askedBy":"web-7"' })
    run()
    expect(await calls()).toHaveLength(1)
  })

  it('logs an alert where there is no command', async () => {
    await rm(path.join(work, 'command'))
    await daemonWrites('alert', { reason: 'rejected' })
    const { stdout } = spawnSync(path.join(work, 'alert'), [runtime], {
      encoding: 'utf8',
      env: { PATH: process.env['PATH'], RUNTIME_DIRECTORY: path.join(work, 'own') },
    })
    expect(stdout).toBe('<5>The alert is raised: {"reason":"rejected"}\n')
  })
})
