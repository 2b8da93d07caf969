// Compares the tables of the manual with the code and with a daemon.
import { readdirSync, readFileSync } from 'node:fs'
import { join } from 'node:path'
import { describe, expect, test } from 'vitest'
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
import { startExample, startWhole } from './example.ts'
import { bare, listEntries, manualText, pages, PROJECT, tableRows } from './manual.ts'
import { stateDiagram } from '../../systemd/man/states.ts'
import { commandChapter, outlines } from '../../systemd/man/tables.ts'
import { httpAsk } from '../support/outside.ts'
import { isWithoutRedis } from '../support/redis.ts'
import { runCli } from '../support/run-cli.ts'

test('what is made from the code is what the code says', () => {
  for (const made of [commandChapter(), stateDiagram(), ...Object.values(outlines())])
    expect(manualText()).toContain(made.trim())
})

describe('of the protocol', () => {
  test('the requests and their answers are those of protocol.ts', () => {
    const listed = tableRows('requests').map(([type, , answer]) => [bare(type), bare(answer)])
    expect(Object.fromEntries(listed)).toEqual(answerTypes)
  })

  test('the codes of faults have the status that http.sock gives them', () => {
    const listed = listEntries('faults').map(([term]) => {
      const [code, status] = term.split(' ')
      return [code, Number(status?.slice(1, -1))] as const
    })
    expect(listed.map(([code]) => code)).toEqual(expect.arrayContaining([...faultCodes]))
    for (const [code, status] of listed) expect([code, codes[code as FaultCode]]).toEqual([code, status])
  })

  test('the paths are those that the daemon has, with their methods', async () => {
    const { daemon } = await startExample()
    const listed = tableRows('routes').map(([line]) => bare(line).split(' ') as [string, string])
    const { detail } = (await httpAsk(daemon, '/nowhere')).json
    expect(String(detail).split('there is ')[1]?.split(', ')).toEqual(listed.map(([, path]) => path))
    for (const [method, path] of listed)
      expect([404, 405], `${method} ${path}`).not.toContain((await httpAsk(daemon, path, { method })).status)
  })
})

describe('of what is seen from outside', () => {
  const withoutRedis = isWithoutRedis('the table of metrics')
  test.skipIf(withoutRedis)('the metrics are those of a daemon that has everything', async () => {
    const { daemon } = await startWhole()
    const { body } = await httpAsk(daemon, '/metrics')
    expect(listEntries('metrics')).toEqual(metricRows(body))
  })

  test('the files are those that a daemon leaves in its directories', async () => {
    const { daemon } = await startExample()
    for (const [folder, where] of [
      ['run', 'runtime'],
      ['state', 'state'],
    ] as const) {
      const rows = tableRows('files').filter(([, listedWhere]) => listedWhere === where)
      const listed = rows
        .flatMap(([names]) => bare(names).split(', '))
        .filter((name) => !name.startsWith('alert'))
      const there = (): string[] => readdirSync(join(daemon.directory, folder))
      await expect.poll(() => there().toSorted()).toEqual(listed.toSorted())
    }
  })

  test('the exit statuses are those that there are; without a daemon each client has its own', async () => {
    const listed = listEntries('statuses').map(([status]) => Number(status))
    expect(listed).toEqual(Object.values(exitStatus))
    const noDaemon = { env: { KYC_TOKEND_SOCKET: join(PROJECT, 'no-such.sock') } }
    for (const [name] of Object.entries(commands).filter(([, { options }]) => 'socket' in options))
      expect((await runCli([name, ...(name === 'exec' ? ['--', 'true'] : [])], noDaemon)).status).toBe(69)
  })
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

/** Name, labels and meaning of each metric, in the order of the text. */
function metricRows(text: string): string[][] {
  const metric = /^# HELP (\S+) (.*)\n# TYPE .*\n(?:\S+?\{(.*?)\} )?/gm
  return [...text.matchAll(metric)].map(([, name = '', help = '', labels = '']) => {
    const names = [...labels.matchAll(/(\w+)=/g)].map(([, label]) => label)
    return [`${name}${names.length === 0 ? '' : `{${names.join(',')}}`}`, help]
  })
}
