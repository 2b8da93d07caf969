import { spawnSync } from 'node:child_process'
import { cpSync, mkdtempSync, readdirSync, rmSync, writeFileSync } from 'node:fs'
import path from 'node:path'
import { expect, it, onTestFinished } from 'vitest'
import { credentials, PROGRAM, startDaemon } from '../support/daemon.ts'
import { serviceOf, tokenOf } from '../support/outside.ts'
import { tempDirectory } from '../support/temp-directory.ts'

const [node, program] = PROGRAM
const bundle = path.dirname(program)

/** A directory beside the bundle, from which the native module is found, too. */
function besideBundle(): string {
  const directory = mkdtempSync(`${bundle}-`)
  onTestFinished(() => rmSync(directory, { recursive: true, force: true }))
  return directory
}

it('the program is one file, and a command loads no more of Node than it uses', () => {
  const directory = besideBundle()
  const alone = path.join(directory, 'cli.cjs')
  cpSync(program, alone)
  const script = `
    process.on('exit', () => process.stderr.write(process.moduleLoadList.join()))
    process.argv[1] = ${JSON.stringify(alone)}
    require(process.argv[1])`
  const { status, stdout, stderr } = spawnSync(node, ['--eval', script, alone, '--version'], {
    encoding: 'utf8',
  })
  expect({ status, stdout }).toEqual({
    status: 0,
    stdout: expect.stringMatching(/^kyc-tokend \d\S* \(Node 24\.\S*, OpenSSL 3\.\S*\)\n$/),
  })
  const loaded = stderr.split(',')
  expect(loaded).toContain('NativeModule fs')
  for (const name of ['http', 'https', 'tls', 'crypto', 'child_process', 'fs/promises'])
    expect(loaded, name).not.toContain(`NativeModule ${name}`)
})

it('a daemon whose files were replaced reloads, and takes rotated credentials over', async () => {
  const service = await serviceOf()
  const installed = besideBundle()
  cpSync(bundle, installed, { recursive: true })
  const directory = await tempDirectory()
  const keyFile = path.join(directory, 'api-key')
  writeFileSync(keyFile, credentials.apiKey, { mode: 0o600 })
  const config = { credentials: { ...credentials, apiKey: { file: keyFile } } }
  const daemon = startDaemon({
    directory,
    baseUrl: service.url,
    config,
    program: [node, path.join(installed, 'cli.cjs')],
  })
  await daemon.listening()
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
