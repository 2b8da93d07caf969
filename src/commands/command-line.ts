// Finds the command and the options in argv, and writes the help. What could be a token is not repeated.
import { parseArgs } from 'node:util'
import { nearestName } from '../lib/nearest.ts'
import { wrap } from '../lib/display-text.ts'
import { UsageError } from '../lib/error.ts'
import type { CommandSpec, OptionSpec } from '../terminal/command.ts'

type ParsedCommand =
  | { readonly wants: 'version' }
  | { readonly wants: 'help'; readonly spec: CommandSpec | undefined }
  | {
      readonly wants: 'command'
      readonly spec: CommandSpec
      readonly options: Record<string, string | boolean>
      readonly positionals: string[]
    }

/** A word that a message may repeat: it looks like a command or an option. Others could be a secret. */
const WORD = /^-{0,2}[a-z][a-z-]{0,23}$/

/** Throws UsageError. */
export function parseCommandLine(argv: readonly string[], commands: readonly CommandSpec[]): ParsedCommand {
  const [first, ...rest] = argv
  if (first === undefined) throw new UsageError('Say what to do: `kyc-tokend --help` lists the commands.')
  if (first === '--version') return { wants: 'version' }
  if (['--help', '-h', 'help'].includes(first)) {
    const topic = rest.find((word) => !word.startsWith('-'))
    return { wants: 'help', spec: topic === undefined ? undefined : specOf(topic, commands) }
  }
  return parseCommand(specOf(first, commands), rest)
}

function specOf(name: string, commands: readonly CommandSpec[]): CommandSpec {
  const spec = commands.find((command) => command.name === name)
  if (spec !== undefined) return spec
  const kind = name.startsWith('-') ? 'option' : 'command'
  const names = [...commands.map((command) => command.name), '--help', '--version']
  throw unknownWord(`There is no ${kind}`, name, { names, help: 'kyc-tokend --help' })
}

function parseCommand(spec: CommandSpec, args: string[]): ParsedCommand {
  const types = Object.entries(spec.options).map(([name, { value }]) => {
    return [name, { type: value === undefined ? 'boolean' : 'string' }] as const
  })
  const { tokens } = parseArgs({
    args,
    options: { help: { type: 'boolean', short: 'h' }, ...Object.fromEntries(types) },
    // Its own errors repeat what was typed.
    strict: false,
    allowPositionals: true,
    tokens: true,
  })
  const options: Record<string, string | boolean> = {}
  const positionals: string[] = []
  const help = `kyc-tokend ${spec.name} --help`
  for (const token of tokens) {
    if (token.kind === 'positional') positionals.push(token.value)
    if (token.kind !== 'option') continue
    if (token.name === 'help') return { wants: 'help', spec }
    const option = Object.hasOwn(spec.options, token.name) ? spec.options[token.name] : undefined
    if (option === undefined) {
      const names = Object.keys(spec.options).map((name) => `--${name}`)
      throw unknownWord(`${spec.name} has no option`, token.rawName, { names, help })
    }
    options[token.name] = checkedValue(token, option)
  }
  if (positionals.length > 0 && spec.positionals === undefined)
    throw new UsageError(`${spec.name} does not take arguments beside its options: see \`${help}\`.`)
  return { wants: 'command', spec, options, positionals }
}

/** Names the word that was probably meant, or the command that lists the words. */
function unknownWord(
  problem: string,
  word: string,
  { names, help }: { names: readonly string[]; help: string },
): UsageError {
  const nearest = nearestName(word, names)
  const shown = WORD.test(word) ? word : 'of this name'
  const remedy = nearest === undefined ? `\`${help}\` lists them.` : `did you mean ${nearest}?`
  return new UsageError(`${problem} ${shown}: ${remedy}`)
}

type OptionToken = { rawName: string; value?: string | undefined; inlineValue?: boolean | undefined }

function checkedValue({ rawName, value, inlineValue }: OptionToken, option: OptionSpec): string | boolean {
  if (option.value === undefined) {
    if (value !== undefined) throw new UsageError(`${rawName} takes no value.`)
    return true
  }
  // `--wait --json` lacks a value rather than having a strange one.
  if (value === undefined || (inlineValue !== true && /^-./.test(value)))
    throw new UsageError(`${rawName} needs a value: ${rawName} ${option.value}.`)
  if (value === '') throw new UsageError(`${rawName} is empty: give it a value, or leave it out.`)
  if (option.choices !== undefined && !option.choices.includes(value))
    throw new UsageError(`${rawName} takes one of ${option.choices.join(', ')}.`)
  return value
}

const WIDTH = 90
const INDENT = '  '

/** The help of one command, or of the program. */
export function helpOf(spec: CommandSpec | undefined, commands: readonly CommandSpec[]): string {
  const lines = spec === undefined ? programHelp(commands) : commandHelp(spec)
  return `${lines.join('\n')}\n`
}

function programHelp(commands: readonly CommandSpec[]): string[] {
  return [
    'kyc-tokend fetches the access token of an identity-verification service, keeps it fresh and serves',
    'it to the processes of this host.',
    '',
    'Usage: kyc-tokend COMMAND [OPTION …]',
    '',
    ...table(commands.map(({ name, summary }) => [name, summary])),
    '',
    'kyc-tokend COMMAND --help describes a command; kyc-tokend --version prints its version and those of',
    'Node and OpenSSL.',
  ]
}

/** Every exit status of a command with its meaning, in the order of their numbers. */
export function exitsOf({ exits }: CommandSpec): NonNullable<CommandSpec['exits']> {
  const unavailable = [...(exits?.[69] === undefined ? [] : [exits[69]]), 'Node is too old']
  return {
    0: 'success',
    64: 'the command line is wrong',
    70: 'an internal error',
    ...exits,
    69: unavailable.join(', or '),
  }
}

/** The exit statuses of a command, as one sentence. */
function exitSentence(spec: CommandSpec): string {
  const { other, ...known } = exitsOf(spec)
  const parts = Object.entries(known).map(([status, when]) => `${status} ${when}`)
  return `Exit status: ${[...parts, ...(other === undefined ? [] : [`any other: ${other}`])].join('; ')}.`
}

function commandHelp(spec: CommandSpec): string[] {
  const { name, positionals, options, summary, details: paragraphs = [], examples } = spec
  const rows = Object.entries(options).map(([option, details]): [string, string] => {
    const choices = details.choices === undefined ? '' : ` (${details.choices.join(', ')})`
    const standard = details.default === undefined ? '' : ` [${details.default}]`
    const value = details.value === undefined ? '' : ` ${details.value}`
    return [`--${option}${value}`, `${details.summary}${choices}${standard}`]
  })
  // Such as `kyc-tokend reject [OPTION …] [FINGERPRINT|-]`.
  const usage = ['Usage: kyc-tokend', name, rows.length > 0 && '[OPTION …]', positionals]
  return [
    usage.filter(Boolean).join(' '),
    '',
    `${summary}.`,
    ...[...paragraphs, exitSentence(spec)].flatMap((paragraph) => ['', ...wrap(paragraph, WIDTH)]),
    '',
    ...table([...rows, ['--help', 'This help']]),
    '',
    examples.length === 1 ? 'Example:' : 'Examples:',
    '',
    ...examples.map((line) => INDENT + line),
  ]
}

function table(rows: readonly (readonly [string, string])[]): string[] {
  const column = Math.max(...rows.map(([name]) => name.length)) + 2
  return rows.flatMap(([name, text]) => {
    const lines = wrap(text, WIDTH - INDENT.length - column)
    return lines.map((line, index) => INDENT + (index === 0 ? name : '').padEnd(column) + line)
  })
}
