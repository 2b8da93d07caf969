// Compares the tables of the manual with the code and with a daemon.
import { readdirSync, readFileSync } from 'node:fs'
import { join } from 'node:path'
import { expect, test } from 'vitest'
import { statuses as codes } from '../../src/delivery/routes.ts'
import { commands } from '../../src/commands/specs.ts'
import { exitStatus } from '../../src/lib/error.ts'
import {
  answerTypes,
  faultCodes,
  permanentReasons,
  type AlertReason,
  type FaultCode,
} from '../../src/protocol.ts'
import { startExample } from './example.ts'
import { bare, EXAMPLES, listEntries, manualText, pages, PROJECT, tableRows } from './manual.ts'
import { stateDiagram } from '../../systemd/man/states.ts'
import { commandChapter, outlines } from '../../systemd/man/tables.ts'
import { wholeConfig } from '../../systemd/man/whole-config.ts'
import { httpAsk } from '../support/outside.ts'
import { runCli } from '../support/run-cli.ts'

test('what is made from the code is what the code says', () => {
  for (const made of [commandChapter(), stateDiagram(), ...Object.values(outlines())])
    expect(manualText()).toContain(made.trim())
  expect(readFileSync(join(EXAMPLES, 'all-settings.yaml'), 'utf8')).toBe(wholeConfig())
})

test('the requests with their answers, and the codes of faults with their status, are those of the protocol', () => {
  const listed = tableRows('requests').map(([type, , answer]) => [bare(type), bare(answer)])
  expect(Object.fromEntries(listed)).toEqual(answerTypes)
  const faults = listEntries('faults').map(([term]) => {
    const [code, status] = term.split(' ')
    return [code, Number(status?.slice(1, -1))] as const
  })
  expect(faults.map(([code]) => code)).toEqual(expect.arrayContaining([...faultCodes]))
  for (const [code, status] of faults) expect([code, codes[code as FaultCode]]).toEqual([code, status])
})

test('the paths, with their methods, and the files are those of a daemon', async () => {
  const { daemon } = await startExample()
  const routes = tableRows('routes').map(([line]) => bare(line).split(' ') as [string, string])
  const { detail } = (await httpAsk(daemon, '/nowhere')).json
  expect(String(detail).split('there is ')[1]?.split(', ')).toEqual(routes.map(([, path]) => path))
  for (const [method, path] of routes)
    expect([404, 405], `${method} ${path}`).not.toContain((await httpAsk(daemon, path, { method })).status)
  for (const [folder, where] of [
    ['run', 'runtime'],
    ['state', 'state'],
  ] as const) {
    const rows = tableRows('files').filter(([, listedWhere]) => listedWhere === where)
    const names = rows.flatMap(([cell]) => bare(cell).split(', ')).filter((name) => !name.startsWith('alert'))
    const there = (): string[] => readdirSync(join(daemon.directory, folder))
    await expect.poll(() => there().toSorted()).toEqual(names.toSorted())
  }
})

test('the exit statuses are those that there are; without a daemon each client has its own', async () => {
  const listed = listEntries('statuses').map(([status]) => Number(status))
  expect(listed).toEqual(Object.values(exitStatus))
  const noDaemon = { env: { KYC_TOKEND_SOCKET: join(PROJECT, 'no-such.sock') } }
  for (const [name] of Object.entries(commands).filter(([, { options }]) => 'socket' in options))
    expect((await runCli([name, ...(name === 'exec' ? ['--', 'true'] : [])], noDaemon)).status).toBe(69)
})

test('each alert rule, and each reason of an alert, has a section of its own in troubleshooting', () => {
  const page = pages().find(({ path }) => path.endsWith('kyc-tokend-troubleshooting.7.md'))?.text ?? ''
  const sections = [...page.matchAll(/^### (\S+)$/gm)].map(([, title]) => title)
  const rules = readFileSync(join(PROJECT, 'systemd/prometheus/kyc-tokend.rules.yml'), 'utf8')
  const named = [...rules.matchAll(/- alert: (\w+)\n[^]*?runbook_url: (\S+)/g)]
  expect(named.length).toBe(rules.match(/- alert: /g)?.length)
  const manual = 'file:///usr/share/doc/kyc-tokend/manual/kyc-tokend-troubleshooting.7.md'
  for (const [, alert = '', url] of named) expect(url).toBe(`${manual}#${alert.toLowerCase()}`)
  const reasons = [...permanentReasons, 'rejected', 'no-token', 'test'] satisfies AlertReason[]
  expect(sections).toEqual([...named.map(([, alert]) => alert), ...reasons])
})

test('every `kyc-tokend …` that is shown is a command with these options', () => {
  const shown = manualText()
    .replaceAll(/^```text\n[^]*?^```$/gm, '')
    .matchAll(/(?:`|\n|\| |sudo |npx )kyc-tokend ([a-z]+(?:-[a-z]+)*)((?: --?\w[\w-]*(?: [\w.]+)?)*)/g)
  const seen = [...shown]
  expect(seen.length).toBeGreaterThan(30)
  for (const [text, name = '', options = ''] of seen) {
    expect(Object.keys(commands), text).toContain(name)
    const known = Object.keys(commands[name]!.options)
    for (const [, option] of options.matchAll(/--([\w-]+)/g)) expect(known, text).toContain(option)
  }
})
