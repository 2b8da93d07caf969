// Finds command and options in argv, and writes help and completions. A word that could be a token is not repeated.
import { parseArgs } from 'node:util'
import { wrap } from '../lib/display-text.ts'
import { UsageError } from '../lib/error.ts'
import type { Commands, CommandSpec, OptionSpec, RunCommand } from '../terminal/command.ts'

type ParsedCommand =
  | { readonly wants: 'version' }
  | { readonly wants: 'help'; readonly name: string | undefined }
  | {
      readonly wants: 'command'
      readonly spec: CommandSpec
      readonly options: Record<string, string | boolean>
      readonly positionals: string[]
    }

/** Throws UsageError. */
export function parseCommandLine(argv: readonly string[], commands: Commands): ParsedCommand {
  const [first, ...rest] = argv
  if (first === undefined) throw new UsageError('Say what to do: `kyc-tokend --help` lists the commands.')
  if (first === '--version') return { wants: 'version' }
  if (['--help', '-h'].includes(first)) return { wants: 'help', name: undefined }
  const spec = Object.hasOwn(commands, first) ? commands[first] : undefined
  if (spec !== undefined) return parseCommand(first, spec, rest)
  const kind = first.startsWith('-') ? 'option' : 'command'
  throw new UsageError(`There is no ${kind} ${shown(first)}: \`kyc-tokend --help\` lists them.`)
}

function parseCommand(name: string, spec: CommandSpec, args: string[]): ParsedCommand {
  const types = Object.entries(spec.options).map(([option, { value }]) => {
    return [option, { type: value === undefined ? 'boolean' : 'string' }] as const
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
  const help = `kyc-tokend ${name} --help`
  for (const token of tokens) {
    if (token.kind === 'positional') positionals.push(token.value)
    if (token.kind !== 'option') continue
    if (token.name === 'help') return { wants: 'help', name }
    const option = Object.hasOwn(spec.options, token.name) ? spec.options[token.name] : undefined
    if (option === undefined)
      throw new UsageError(`${name} has no option ${shown(token.rawName)}: \`${help}\` lists them.`)
    options[token.name] = checkedValue(token, option)
  }
  if (positionals.length > 0 && spec.positionals === undefined)
    throw new UsageError(`${name} does not take arguments beside its options: see \`${help}\`.`)
  return { wants: 'command', spec, options, positionals }
}

/** A word that looks like a command or an option: others could be a secret, and are not repeated. */
function shown(word: string): string {
  return /^-{0,2}[a-z][a-z-]{0,23}$/.test(word) ? word : 'of this name'
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

/** The help of every command ends with these; `exec` ends with the status of its command. */
const EXIT_STATUS =
  'Exit status: 0 success; 64 the command line is wrong; 69 no daemon is there, or Node is too old; 70 an internal ' +
  'fault; 75 no usable token now, try again; 77 the account is refused, or access denied; 78 the configuration is faulty.'

/** The help of one command, or of the program. */
export function helpOf(name: string | undefined, commands: Commands): string {
  if (name === undefined)
    return helpText([
      'kyc-tokend fetches the access token of an identity-verification service, keeps it fresh and serves it.',
      'Usage: kyc-tokend COMMAND [OPTION …]',
      rows(Object.entries(commands).map(([each, { summary }]) => [each, summary])),
      '`kyc-tokend COMMAND --help` describes a command; `kyc-tokend --version` names versions.',
      EXIT_STATUS,
    ])
  const { positionals, options, summary, details } = commands[name]!
  const optionRows = Object.entries(options).map(([option, { value = '', ...more }]) => {
    const choices = more.choices === undefined ? '' : ` (${more.choices.join(', ')})`
    const standard = more.default === undefined ? '' : ` [${more.default}]`
    return [`--${option} ${value}`, `${more.summary}${choices}${standard}`] as const
  })
  const usage = ['Usage: kyc-tokend', name, '[OPTION …]', positionals].filter(Boolean).join(' ')
  const help = ['--help', 'This help; `kyc-tokend --help` has the exit statuses'] as const
  return helpText([usage, `${summary}.`, ...(details ? [details] : []), rows([...optionRows, help])])
}

/** Paragraphs, of which each list of rows is one. */
function helpText(paragraphs: readonly (string | readonly string[])[]): string {
  const lines = paragraphs.map((each) => (typeof each === 'string' ? wrap(each, WIDTH) : each).join('\n'))
  return `${lines.join('\n\n')}\n`
}

function rows(pairs: readonly (readonly [string, string])[]): string[] {
  const column = Math.max(...pairs.map(([name]) => name.length)) + 4
  return pairs.flatMap(([name, text]) =>
    wrap(text, WIDTH - column).map((line, index) => (index === 0 ? `  ${name}` : '').padEnd(column) + line),
  )
}

/** The command that prints a script for bash: it offers commands, then the options of a command, else files. */
export function completionsOf(commands: Commands): RunCommand {
  const cases = Object.entries(commands).map(([name, { options }]) => {
    const words = [...Object.keys(options), 'help'].map((option) => `--${option}`)
    return `    ${name}) words='${words.join(' ')}' ;;`
  })
  const names = [...Object.keys(commands), '--help', '--version']
  const script = `# kyc-tokend: completions for bash
_kyc_tokend() {
  local words='${names.join(' ')}'
  if ((COMP_CWORD > 1)); then
    case \${COMP_WORDS[1]} in
${cases.join('\n')}
    *) words= ;;
    esac
    [[ \${COMP_WORDS[COMP_CWORD]} == -* ]] || words=
  fi
  COMPREPLY=($(compgen -W "$words" -- "\${COMP_WORDS[COMP_CWORD]}"))
}
complete -o default -F _kyc_tokend kyc-tokend
`
  return async ({ stdout }) => {
    stdout.write(script)
    return 0
  }
}
