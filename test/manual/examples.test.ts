// Runs examples of the manual, as written, against a real daemon.
import { spawnSync } from 'node:child_process'
import { readFileSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'
import { expect, test } from 'vitest'
import { validateDocument } from '../../src/config/document.ts'
import { lacks } from '../support/lacks.ts'
import { startExample } from './example.ts'
import { block, PROJECT } from './manual.ts'

type Settings = Record<string, unknown>
const sh = ['sh', '-euc']

test('the configuration in README.md works as it is written', async () => {
  const { baseUrl, credentials, ...settings } = JSON.parse(block('readme-config').code) as Settings
  expect(baseUrl).toBe('https://api.example.com')
  expect(credentials).toEqual({ apiKey: { file: 'api-key' }, apiSecret: { file: 'api-secret' } })
  expect(Object.keys(settings)).toHaveLength(3)
  const example = await startExample(settings)
  expect(readFileSync(join(example.daemon.directory, 'run/token'), 'utf8')).toBe(example.token)
})

test.skipIf(lacks('curl', 'python3'))('the token files of the manual do what they are for', async () => {
  const { tokenFiles } = JSON.parse(block('token-files').code) as { tokenFiles: { path: string }[] }
  const template = JSON.parse(block('template-file').code) as object
  const example = await startExample({ tokenFiles: [...tokenFiles, { ...template, path: 'app.ini' }] })
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
  expect(file('app.ini')).toBe(`[api]\ntoken = ${example.token}\n`)
})

test.each(['small-config', 'secret-files', 'proxy', 'ca-file', 'unattended-document'])(
  '%s has settings that there are',
  (name) => {
    const settings = JSON.parse(block(name).code) as Settings
    const whole = 'apiKey' in settings ? { credentials: settings } : settings
    const least = { baseUrl: 'https://api.example.com', credentials: { apiKey: 'k', apiSecret: 's' } }
    expect(validateDocument({ ...least, ...whole }).faults).toEqual([])
  },
)

test.skipIf(lacks('curl', 'socat'))('the commands of the shell get the token, and call the API', async () => {
  const example = await startExample()
  const { token } = example
  expect(block('crontab').code).toMatch(/^\S+( \S+){4} [^%]+$/)
  const entry = [...sh, 'sh -c "$(cut -d" " -f6- "$0")"']
  const called = [
    await example.run('shell', { with: sh }),
    await example.run('readme-shell', { with: sh }),
    await example.run('crontab', { with: entry, as: 'crontab' }),
  ]
  expect(called).toEqual(called.map(() => '/some/path is answered\n'))
  expect(example.authorizations('/some/path')).toEqual(called.map(() => `Bearer ${token}`))

  const billing = '#!/bin/sh\necho "$*: ${KYC_ACCESS_TOKEN}"\n'
  writeFileSync(join(example.daemon.directory, 'billing'), billing, { mode: 0o755 })
  const withBilling = [...sh, 'PATH=$PWD:$PATH; eval "$0"']
  expect(await example.run('exec', { with: withBilling })).toBe(`--once: ${token}\n`)

  const answer = JSON.parse((await example.run('socat', { with: sh })).replace(/\f$/, '')) as object
  expect(answer).toMatchObject({ type: 'token.result', data: { id: '1', accessToken: token } })
})

test('the simulation prints a table', () => {
  const smaller = block('simulate')
    .code.replace('--daemons 10000', '--daemons 100')
    .replace('npm', 'exec npm')
  const { status, stdout } = spawnSync('sh', ['-euc', smaller], { cwd: PROJECT, encoding: 'utf8' })
  expect(status).toBe(0)
  expect(stdout).toMatch(/as built +without jitter\n/)
})
