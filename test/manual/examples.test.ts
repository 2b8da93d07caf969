// Runs every example of the manual, as written, against a real daemon.
import { spawn, spawnSync } from 'node:child_process'
import { existsSync, readdirSync, readFileSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'
import type { Parents } from 'mdast'
import { remark } from 'remark'
import { describe, expect, onTestFinished, test } from 'vitest'
import { parse } from 'yaml'
import { PROGRAM } from '../support/daemon.ts'
import { validateDocument } from '../../src/config/schema.ts'
import { lacks } from '../support/lacks.ts'
import { freePort } from '../support/redis.ts'
import { tempDirectory } from '../support/temp-directory.ts'
import { expectUntil } from '../support/until.ts'
import { startExample } from './example.ts'
import { block, blocks, manualText, pages, PROJECT } from './manual.ts'

const sh = ['sh', '-euc']

test('the configuration in README.md works as it is written', async () => {
  const { baseUrl, credentials, ...settings } = JSON.parse(block('readme-config').code) as Record<
    string,
    unknown
  >
  expect(baseUrl).toBe('https://api.example.com')
  expect(credentials).toEqual({ apiKey: { file: 'api-key' }, apiSecret: { file: 'api-secret' } })
  expect(Object.keys(settings)).toHaveLength(3)
  const example = await startExample(settings)
  expect(readFileSync(join(example.daemon.directory, 'run/token'), 'utf8')).toBe(example.token)
})

test.skipIf(lacks('curl', 'python3'))('the token files of the manual do what they are for', async () => {
  const { tokenFiles } = JSON.parse(block('token-files').code) as { tokenFiles: { path: string }[] }
  const example = await startExample({ tokenFiles })
  expect(block('raw-file').code).toBe('token=$(cat /run/kyc-tokend/token)')
  const file = (name: string): string => readFileSync(join(example.daemon.directory, 'run', name), 'utf8')
  expect(file('token')).toBe(example.token)
  for (const name of ['raw-file', 'env-file']) await example.run(name, { with: sh })
  const header = `Bearer ${example.token}`
  expect(example.authorizations('/some/path')).toEqual([header])
  expect(file('token.header')).toBe(`Authorization: ${header}\n`)
  expect(block('environment-file').code).toContain('EnvironmentFile=/run/kyc-tokend/token.env\n')
  // systemd.exec(5): assignments without quotes and without spaces are taken as they are.
  expect(file('token.env')).toBe(`KYC_ACCESS_TOKEN=${example.token}\n`)
  expect(example.token).toMatch(/^[\w.~+/=-]+$/)
  expect(Object.keys(JSON.parse(file('token.json')) as object)).toEqual(
    'accessToken expiresAt obtainedAt generation'.split(' '),
  )
})

test('a template of the manual is filled in', async () => {
  const entry = JSON.parse(block('template-file').code) as { path: string; template: string }
  const directory = await tempDirectory()
  writeFileSync(join(directory, entry.template), block('template-text').code)
  const example = await startExample(
    { tokenFiles: [{ path: 'token' }, { ...entry, path: 'app.ini' }] },
    directory,
  )
  const text = readFileSync(join(directory, 'run/app.ini'), 'utf8')
  expect(text).toBe(`[api]\nurl = ${example.service.url}\ntoken = ${example.token}`)
})

test.each(['small-config', 'secret-files', 'proxy', 'ca-file', 'unattended-document'])(
  '%s has settings that there are',
  (name) => {
    const settings = JSON.parse(block(name).code) as Record<string, unknown>
    const whole = 'apiKey' in settings ? { credentials: settings } : settings
    const document = {
      baseUrl: 'https://api.example.com',
      credentials: { apiKey: 'k', apiSecret: 's' },
      ...whole,
    }
    expect(validateDocument(document).faults).toEqual([])
  },
)

describe('the shell', () => {
  test.skipIf(lacks('curl'))('kyc-tokend, and curl', async () => {
    const example = await startExample()
    expect(await example.run('shell', { with: sh })).toBe('/some/path is answered\n')
    expect(await example.run('readme-shell', { with: sh })).toBe('/some/path is answered\n')
    expect(block('crontab').code).toMatch(/^\S+( \S+){4} [^%]+$/)
    const entry = [...sh, 'sh -c "$(cut -d" " -f6- "$0")"']
    expect(await example.run('crontab', { with: entry, as: 'crontab' })).toBe('/some/path is answered\n')
    const header = `Bearer ${example.token}`
    expect(example.authorizations('/some/path')).toEqual([header, header, header])
  })

  test('kyc-tokend exec --on-change', async () => {
    const example = await startExample({ tokenFiles: [{ path: 'token', format: 'raw' }] })
    const billing = '#!/bin/sh\necho "$*: ${KYC_ACCESS_TOKEN}"\n'
    writeFileSync(join(example.daemon.directory, 'billing'), billing, { mode: 0o755 })
    const withBilling = ['sh', '-euc', 'PATH=$PWD:$PATH; eval "$0"']
    const restarted = await example.run('exec-on-change', { with: withBilling })
    expect(restarted).toBe(`--listen 8080: ${example.token}\n`)
    const signalled = await example.run('exec-signal', { with: withBilling })
    expect(signalled).toMatch(/^--token-file \S+\/token: /)
  })

  test.skipIf(lacks('curl'))('kyc-tokend sandbox', async () => {
    const port = await freePort()
    const [, ...words] = block('examples-sandbox')
      .code.split('\n')[0]!
      .replace('8099', String(port))
      .split(' ')
    const [node, ...program] = PROGRAM
    const sandbox = spawn(node, [...program, ...words], { stdio: 'ignore' })
    onTestFinished(() => void sandbox.kill('SIGKILL'))
    const outage = block('outage').code.replace('8099', String(port))
    await expectUntil('the sandbox', () => spawnSync('sh', ['-euc', `${outage} --fail`]).status === 0)
    const { status } = await fetch(`http://127.0.0.1:${port}/token/external/jwt`, {
      method: 'POST',
      body: JSON.stringify({ apiKey: 'sandbox-key', apiSecret: 'sandbox-secret' }),
    })
    expect(status).toBe(503)
  })

  test.skipIf(lacks('socat'))('socat', async () => {
    const example = await startExample()
    const answer = (await example.run('socat', { with: sh })).replace(/\f$/, '')
    expect(JSON.parse(answer)).toMatchObject({
      type: 'token.result',
      data: { id: '1', accessToken: example.token },
    })
  })
})

test('the simulation prints a table and a plot', () => {
  const smaller = block('simulate')
    .code.replace('--daemons 10000', '--daemons 100')
    .replace('npm', 'exec npm')
  const { status, stdout } = spawnSync('sh', ['-euc', smaller], { cwd: PROJECT, encoding: 'utf8' })
  expect(status).toBe(0)
  expect(stdout).toMatch(/as built +without jitter[\s\S]*█/)
})

/** Blocks that tests run in other words, by the file that does. */
const IN_OTHER_WORDS: Readonly<Record<string, string>> = {
  try: 'test/commands/demo.test.ts',
  'quick-tests': '.ci/run',
  'first-install': 'test/support/package.ts',
  'build-package': 'test/support/package.ts',
  'install-package': 'test/support/installation.ts',
  'build-release': 'test/systemd/release.test.ts',
  'build-image': 'test/systemd/oci.test.ts',
  checkout: 'test/commands/demo.test.ts',
  'upgrade-file': 'test/systemd/versions.test.ts',
  downgrade: 'test/systemd/versions.test.ts',
}
/** Blocks that no test can run here: their pages say so. */
const NOT_TRIED: Readonly<Record<string, RegExp>> = {
  container: /The last two commands above, Docker and podman\s+were not tried/,
  'container-of-host': /The last two commands above, Docker and podman\s+were not tried/,
  kubernetes: /It was not run on a cluster/,
}

test('every block of code is run or loaded by a test, or its page says that it was not', () => {
  const files = readdirSync(join(PROJECT, 'test'), { recursive: true, encoding: 'utf8' })
  const tests = files
    .filter((file) => file.endsWith('.test.ts'))
    .map((file) => readFileSync(join(PROJECT, 'test', file), 'utf8'))
  const names = blocks().map(({ name }) => name)
  expect(new Set(names).size, 'a name is used twice').toBe(names.length)
  for (const name of names) {
    const isUsed = new RegExp(`['.]${name}'|'${name.replace(/^audit-/, '')}'`)
    if (NOT_TRIED[name] !== undefined) expect(manualText()).toMatch(NOT_TRIED[name])
    else if (IN_OTHER_WORDS[name] !== undefined)
      expect(existsSync(join(PROJECT, IN_OTHER_WORDS[name])), name).toBe(true)
    // Those of the help are run one by one.
    else if (!name.startsWith('examples-'))
      expect(
        tests.some((text) => isUsed.test(text)),
        name,
      ).toBe(true)
  }
})

test('no page has a block of code, fenced or indented, without a mark', () => {
  const mark = /^<!-- (?:(?:run|drop-in|example|acl): [\w.-]+|picture|states) -->$/
  const unmarked = ({ children }: Parents): string[] =>
    children.flatMap((node, index) => {
      if ('children' in node) return unmarked(node)
      const before = children[index - 1]
      return node.type !== 'code' || (before?.type === 'html' && mark.test(before.value)) ? [] : [node.value]
    })
  for (const { path, text } of pages()) expect(unmarked(remark().parse(text)), path).toEqual([])
})

test('the files for other programs are what these programs read', () => {
  const units = ['svid-unit', 'identity-unit', 'identity-timer', 'environment-file']
  for (const name of units) {
    const lines = block(name)
      .code.split('\n')
      .filter((line) => line !== '' && !line.startsWith('#'))
    for (const line of lines)
      expect(line, name).toMatch(/^(?:\[(?:Unit|Service|Timer|Install)\]|[A-Z]\w+=.+)$/)
  }
  const helper = block('svid-helper').code.split('\n')
  for (const line of helper) expect(line).toMatch(/^(?:#.*|[a-z_]+ = (?:".*"|true|\d+|\[.*\]))$/)
  expect(parse(block('projected-token').code)).toMatchObject({
    spec: { volumes: [{ projected: { sources: [{ serviceAccountToken: { path: 'token' } }] } }] },
  })
})

test('the alias of a checkout leads to the program', () => {
  const script = `shopt -s expand_aliases\n${block('alias').code}\nalias`
  const { stdout } = spawnSync('bash', ['-c', script], { cwd: PROJECT, encoding: 'utf8' })
  const [, node = '', program = ''] = /'(\S+) (\S+)'/.exec(stdout) ?? []
  expect(existsSync(node)).toBe(true)
  const { bin } = JSON.parse(readFileSync(join(PROJECT, 'package.json'), 'utf8')) as { bin: object }
  expect([program]).toEqual(Object.values(bin).map((file: string) => join(PROJECT, file)))
})
