// The tables of README.md that are made from the code; `node test/readme/tables.ts` writes them into it.
import { writeFileSync } from 'node:fs'
import { commands } from '../../src/commands/catalogue.ts'
import type { CommandSpec } from '../../src/commands/command.ts'
import { settingRows } from '../../src/config/schema.ts'
import { scenarioNames, scenarioOf } from '../../src/sandbox/scenarios.ts'
import { failureTable } from '../../src/source/response.ts'
import type { Reason } from '../../src/token/outcome.ts'
import { remedyFor } from '../../src/token/remedy.ts'
import { README, readmeText } from './manual.ts'

interface Table {
  readonly head: readonly string[]
  readonly rows: readonly (readonly string[])[]
}

export function tables(): Readonly<Record<string, Table>> {
  return {
    settings: {
      head: ['setting', 'default', 'meaning'],
      rows: settingRows().map(({ key, default: standard, meaning }) => [
        code(key),
        standard === undefined ? 'required' : code(standard),
        meaning,
      ]),
    },
    commands: {
      head: ['command', 'does', 'options'],
      rows: commands.map((spec) => [
        code(['kyc-tokend', spec.name, ...(spec.positionals ?? '').split(' ')].join(' ').trim()),
        spec.summary,
        optionsOf(spec),
      ]),
    },
    failures: {
      head: ['the service answers', 'reason', 'then'],
      rows: failureTable.map(({ answer, reasons, follows }) => [
        answer,
        reasons[0] === 'ok' ? '' : reasons.map(code).join(', '),
        follows,
      ]),
    },
    scenarios: {
      head: ['scenario', 'answers'],
      rows: scenarioNames.map((name) => [code(name), scenarioOf(name).summary]),
    },
    remedies: {
      head: ['reason', 'what to do'],
      rows: failureTable
        .flatMap(({ reasons }) => reasons)
        .filter((reason): reason is Reason => reason !== 'ok')
        .map((reason) => [code(reason), remedyFor(reason)]),
    },
  }
}

function optionsOf({ options }: CommandSpec): string {
  return Object.entries(options)
    .map(([name, { value }]) => code(value === undefined ? `--${name}` : `--${name} ${value}`))
    .join(', ')
}

function code(text: string): string {
  return `\`${text}\``
}

function markdownOf({ head, rows }: Table): string {
  const line = (cells: readonly string[]): string =>
    `| ${cells.map((cell) => cell.replaceAll('|', String.raw`\|`)).join(' | ')} |\n`
  return line(head) + line(head.map(() => '---')) + rows.map(line).join('')
}

function writeTables(): void {
  let text = readmeText()
  for (const [name, table] of Object.entries(tables())) {
    const place = new RegExp(`(?<=^<!-- table: ${name} -->\n\n)(?:\\|.*\n)*`, 'm')
    text = text.replace(place, () => markdownOf(table))
  }
  writeFileSync(README, text)
}

if (import.meta.main) writeTables()
