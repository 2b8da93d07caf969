// The help, made from the catalogue.
import type { CommandSpec, OptionSpec } from './command.ts'

const WIDTH = 90
const INDENT = '  '

/** The help of one command, or of the program. */
export function helpOf(spec: CommandSpec | undefined, commands: readonly CommandSpec[]): string {
  return spec === undefined ? programHelp(commands) : commandHelp(spec)
}

/** Such as `kyc-tokend reject [OPTION …] [FINGERPRINT|-]`. */
function usageOf(spec: CommandSpec): string {
  const options = Object.keys(spec.options).length > 0 ? '[OPTION …]' : undefined
  return ['kyc-tokend', spec.name, options, spec.positionals].filter((word) => word !== undefined).join(' ')
}

function programHelp(commands: readonly CommandSpec[]): string {
  return [
    'kyc-tokend fetches the access token of an identity-verification service, keeps it fresh and serves',
    'it to the processes of this host.',
    '',
    'Usage: kyc-tokend COMMAND [OPTION …]',
    '',
    ...table(commands.map(({ name, summary }) => [name, summary])),
    '',
    'kyc-tokend COMMAND --help says more of a command; kyc-tokend --version names the version.',
    '',
  ].join('\n')
}

function commandHelp(spec: CommandSpec): string {
  const options: Record<string, OptionSpec> = {
    ...spec.options,
    help: { type: 'boolean', summary: 'This help' },
  }
  const rows = Object.entries(options).map(([name, option]): [string, string] => {
    const choices = option.choices === undefined ? '' : ` (${option.choices.join(', ')})`
    const otherwise = option.default === undefined ? '' : ` [${option.default}]`
    return [
      option.value === undefined ? `--${name}` : `--${name} ${option.value}`,
      `${option.summary}${choices}${otherwise}`,
    ]
  })
  const details = (spec.details ?? []).flatMap((paragraph) => ['', ...wrap(paragraph, WIDTH)])
  return [`Usage: ${usageOf(spec)}`, '', `${spec.summary}.`, ...details, '', ...table(rows), ''].join('\n')
}

function table(rows: readonly (readonly [string, string])[]): string[] {
  const column = Math.max(...rows.map(([name]) => name.length)) + 2
  return rows.flatMap(([name, text]) => {
    const lines = wrap(text, WIDTH - INDENT.length - column)
    return lines.map((line, index) => INDENT + (index === 0 ? name : '').padEnd(column) + line)
  })
}

function wrap(text: string, width: number): string[] {
  const lines: string[] = []
  let line = ''
  for (const word of text.split(' ')) {
    if (line !== '' && line.length + 1 + word.length > width) {
      lines.push(line)
      line = word
    } else {
      line = line === '' ? word : `${line} ${word}`
    }
  }
  return [...lines, line]
}
