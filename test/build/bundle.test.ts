import { cpSync, mkdtempSync, readdirSync, rmSync, writeFileSync } from 'node:fs'
import path from 'node:path'
import { expect, it, onTestFinished } from 'vitest'
import { useDaemons } from '../support/daemon-world.ts'
import { credentials, PROGRAM } from '../support/daemon.ts'
import { tokenOf } from '../support/outside.ts'
import { runProgram } from '../support/run-cli.ts'

const [node, program] = PROGRAM
const bundle = path.dirname(program)
const world = useDaemons()

/** A directory beside the bundle, from which the native module is found, too. */
function besideBundle(): string {
  const directory = mkdtempSync(`${bundle}-`)
  onTestFinished(() => rmSync(directory, { recursive: true, force: true }))
  return directory
}

it('the program is one file, and a command loads no more of Node than it uses', async () => {
  const alone = path.join(besideBundle(), 'cli.cjs')
  cpSync(program, alone)
  const script = `
    process.on('exit', () => process.stderr.write(process.moduleLoadList.join()))
    process.argv[1] = ${JSON.stringify(alone)}
    require(process.argv[1])`
  const { status, stderr } = await runProgram([node, '--eval', script, alone, '--version'])
  expect(status).toBe(0)
  const loaded = stderr.split(',')
  expect(loaded).toContain('NativeModule fs')
  for (const name of ['http', 'https', 'tls', 'crypto', 'child_process', 'fs/promises'])
    expect(loaded, name).not.toContain(`NativeModule ${name}`)
})

it('a daemon whose files were replaced reloads, and takes rotated credentials over', async () => {
  const installed = besideBundle()
  cpSync(bundle, installed, { recursive: true })
  const keyFile = path.join(world.directory, 'api-key')
  writeFileSync(keyFile, credentials.apiKey, { mode: 0o600 })
  const config = { credentials: { ...credentials, apiKey: { file: keyFile } } }
  const daemon = await world.started(config, { program: [node, path.join(installed, 'cli.cjs')] })
  const { accessToken } = await tokenOf(daemon)
  for (const name of readdirSync(installed)) rmSync(path.join(installed, name), { recursive: true })
  writeFileSync(path.join(installed, 'cli.cjs'), 'throw new Error("of another version")')
  daemon.process.kill('SIGHUP')
  await daemon.logged('reloaded')
  writeFileSync(keyFile, 'another-key-4711')
  await daemon.logged('credentials-taken-over')
  expect((await tokenOf(daemon)).accessToken).not.toBe(accessToken)
  expect(await daemon.end()).toBe(0)
})
