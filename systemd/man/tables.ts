// The parts of the manual that come from the code; `node systemd/man/tables.ts` writes them into its pages.
import { readFileSync, writeFileSync } from 'node:fs'
import type { CommandSpec } from '../../src/terminal/command.ts'
import { wrap } from '../../src/lib/display-text.ts'
import { commands } from '../../src/commands/specs.ts'
import { standardService } from '../../src/config/resolve.ts'
import { scenarioNames, summaryOf } from '../../src/sandbox/scenarios.ts'
import { remedyWithoutPlace } from '../../src/host/remedy.ts'
import { failureTable } from '../../src/source/failures.ts'
import type { PostponedReason } from '../../src/protocol.ts'
import { limitLines } from './limit-rows.ts'
import { outlineOf, tableFields } from './protocol-fields.ts'
import { hanging, settingsOutline } from './setting-rows.ts'
import { stateDiagram } from './states.ts'
import { wholeConfig } from './whole-config.ts'

/** Reasons of `status` for which the service was not asked. */
const UNASKED = ['not-asked', 'share-lost'] as const satisfies readonly PostponedReason[]

/** The pages of the lists that do not belong to the protocol. */
const PAGES = new Map([
  ['settings', 'kyc-tokend.config.5.md'],
  ['scenarios', 'kyc-tokend.1.md'],
  ['failures', 'kyc-tokend.8.md'],
  ['remedies', 'kyc-tokend-troubleshooting.7.md'],
])

/** The service of the interface description. */
const { service, pair } = standardService()
const described = { ...service, ...pair }

/** Lists as text, by the name in the marker `<!-- fields: NAME -->`: settings, failures, and so on. */
export function outlines(): Readonly<Record<string, string>> {
  const failures = failureTable(described).map(({ answer, reason, follows }) => {
    const term = reason === 'ok' ? follows : `${reason} (${follows})`
    return entry(term, answer)
  })
  const scenarios = scenarioNames.map((name) => entry(name, summaryOf(name, described)))
  const answers = Object.entries(tableFields).map(([name, fields]) => [name, outlineOf(fields)] as const)
  const all = [
    ['settings', settingsOutline()],
    ['failures', failures],
    ['remedies', remedyLines()],
    ['scenarios', scenarios],
    ['limits', limitLines()],
    ...answers,
  ] as const
  return Object.fromEntries(all.map(([name, lines]) => [name, lines.join('\n')]))
}

function remedyLines(): string[] {
  const reasons = new Set(failureTable(described).flatMap(({ reason }) => (reason === 'ok' ? [] : reason)))
  return [...reasons, ...UNASKED].map((reason) => entry(reason, remedyWithoutPlace(reason)))
}

const entry = (term: string, text: string): string => hanging(`${term}: ${text}`.replaceAll('`', ''))

/**
 * The chapter of kyc-tokend(1) with every command and option, between `<!-- commands -->` and `<!--
 * /commands -->`.
 */
export function commandChapter(): string {
  const shared = [...new Set(Object.values(commands).flatMap(optionRows))].filter((row) => timesOf(row) > 1)
  return [
    ...Object.entries(commands).map(commandSection),
    '### Options of several commands\n',
    optionList(shared),
  ].join('\n')
}

/** How many commands have this row. */
function timesOf(row: string): number {
  return Object.values(commands).filter((spec) => optionRows(spec).includes(row)).length
}

/** Options that other commands have, too, stand once, in a list of their own. */
function commandSection([name, spec]: readonly [string, CommandSpec]): string {
  const { positionals, summary, details, options } = spec
  const own = optionRows(spec).filter((row) => timesOf(row) === 1)
  const paragraph = [`${summary}.`, details].filter(Boolean).join(' ')
  const shared = Object.keys(options).filter((_, index) => timesOf(optionRows(spec)[index]!) > 1)
  return [
    `### kyc-tokend ${[name, ...(positionals === undefined ? [] : [code(positionals)])].join(' ')}\n`,
    `${wrap(paragraph, 110).join('\n')}\n`,
    ...(own.length === 0 ? [] : [optionList(own)]),
    ...(shared.length === 0 ? [] : [`Also ${shared.map((option) => code(`--${option}`)).join(', ')}.\n`]),
  ].join('\n')
}

const optionList = (rows: readonly string[]): string => ['```text', ...rows, '```', ''].join('\n')

/** The text of each option. */
function optionRows({ options }: CommandSpec): string[] {
  return Object.entries(options).map(([option, { value, summary, choices, default: standard }]) => {
    const words = [
      `--${option}${value === undefined ? '' : ` ${value}`}: ${summary}.`,
      ...(choices === undefined ? [] : [`One of ${choices.join(', ')}.`]),
      ...(standard === undefined ? [] : [`Default: ${standard}.`]),
    ]
    return hanging(words.join(' '))
  })
}

function code(text: string): string {
  return `\`${text}\``
}

function rewrite(page: string, change: (text: string) => string): void {
  const file = new URL(page, import.meta.url)
  writeFileSync(file, change(readFileSync(file, 'utf8')))
}

function writeTables(): void {
  for (const [name, outline] of Object.entries(outlines())) {
    const former = new RegExp(`(?<=^<!-- fields: ${name} -->\n\n\`\`\`text\n)[^\`]*(?=\`\`\`)`, 'm')
    rewrite(PAGES.get(name) ?? 'kyc-tokend-protocol.7.md', (text) =>
      text.replace(former, () => `${outline}\n`),
    )
  }
  const former = /(?<=<!-- commands -->\n)[\s\S]*(?=<!-- \/commands -->)/
  rewrite('kyc-tokend.1.md', (text) => text.replace(former, () => `\n${commandChapter()}\n`))
  const picture = /(?<=<!-- states -->\n)[\s\S]*(?=<!-- \/states -->)/
  rewrite('../../src/README.md', (text) => text.replace(picture, () => `\n${stateDiagram()}\n`))
}

if (import.meta.main) {
  writeTables()
  writeFileSync(new URL('../examples/all-settings.yaml', import.meta.url), wholeConfig())
}
