// The manual pages: prose from the files beside this one, commands, settings and exit statuses from the code.
import { readFileSync } from 'node:fs'
import { commands } from '../../src/commands/catalogue.ts'
import type { CommandSpec, OptionSpec } from '../../src/commands/command.ts'
import { settingRows } from '../../src/config/schema.ts'

export interface ManualPage {
  readonly name: string
  readonly section: number
  /** mdoc(7). */
  readonly text: string
}

/** All of them, for this version as it was on that day. */
export function manualPages(version: string, changedAt: Date): ManualPage[] {
  const day = changedAt.toLocaleDateString('en-US', {
    year: 'numeric',
    month: 'long',
    day: 'numeric',
    timeZone: 'UTC',
  })
  const page = (name: string, section: number): ManualPage => ({
    name,
    section,
    text: read(`${name}.${section}`)
      .replace('@DATE@', day)
      .replace('@VERSION@', version)
      .replace('@SYNOPSIS@\n', () => commands.map(synopsis).join(''))
      .replace('@COMMANDS@\n', () => commands.map(commandEntry).join(''))
      .replace('@SETTINGS@\n', () => settingRows().map(settingEntry).join('')),
  })
  return [page('kyc-tokend', 1), page('kyc-tokend', 8), page('kyc-tokend.config', 5)]
}

function synopsis(command: CommandSpec): string {
  return `.Nm\n.Cm ${command.name}\n${usage(command)}`
}

/** The options and arguments of a command, as mdoc shows what may be left out. */
function usage({ options, positionals }: CommandSpec): string {
  const flags = Object.entries(options).map(([name, option]) => `.Op ${flag(name, option)}\n`)
  return flags.join('') + (positionals === undefined ? '' : `.No ${plain(positionals)}\n`)
}

function flag(name: string, { type, value }: OptionSpec): string {
  return type === 'boolean' ? `Fl \\-${plain(name)}` : `Fl \\-${plain(name)} Ar ${plain(value ?? 'VALUE')}`
}

function commandEntry(command: CommandSpec): string {
  const options = Object.entries(command.options).map(
    ([name, option]) => `.It ${flag(name, option)}\n${optionText(option)}`,
  )
  return [
    `.It Cm ${command.name}\n`,
    ...(command.positionals === undefined ? [] : [`.No ${plain(command.positionals)}\n.Pp\n`]),
    `${text(`${command.summary}.`)}\n`,
    ...(command.details ?? []).map((paragraph) => `.Pp\n${text(paragraph)}\n`),
    ...(options.length === 0 ? [] : ['.Pp\n.Bl -tag -width Ds -compact\n', ...options, '.El\n']),
  ].join('')
}

function optionText({ summary, choices, default: standard }: OptionSpec): string {
  const more = [
    ...(choices === undefined ? [] : [`One of ${choices.join(', ')}.`]),
    ...(standard === undefined ? [] : [`Default: ${standard}.`]),
  ]
  return `${[`${summary}.`, ...more].map(text).join('\n')}\n`
}

function settingEntry({ key, default: standard, meaning }: ReturnType<typeof settingRows>[number]): string {
  const told = standard === undefined ? 'Required.' : `Default: \\fR${plain(standard)}`
  return `.It Va ${plain(key)}\n${text(meaning)}\n.br\n${told}\n`
}

/** Prose of the code as lines of mdoc: one sentence a line, and no line that begins like a macro. */
function text(prose: string): string {
  return plain(prose)
    .replaceAll('`', '')
    .replaceAll(/([.!?]) (?=[A-Z])/g, '$1\n')
    .replaceAll(/^(?=['.])/gm, '\\&')
}

const GLYPHS: Readonly<Record<string, string>> = {
  '\\': '\\e',
  '-': '\\-',
  '’': '\\(aq',
  "'": '\\(aq',
  '"': '\\(dq',
  '“': '\\(lq',
  '”': '\\(rq',
  '…': '...',
  '|': '\\*(Ba',
}

function plain(words: string): string {
  return words.replaceAll(/[\\\-’'"“”…|]/g, (character) => GLYPHS[character] ?? character)
}

function read(name: string): string {
  return readFileSync(new URL(name, import.meta.url), 'utf8')
}
