// completions: what a shell should know of our commands, made from the catalogue.
import { UsageError } from '../lib/error.ts'
import { commands } from './specs.ts'
import type { CommandSpec, OptionSpec, RunCommand } from './command.ts'

const shells: Readonly<Record<string, (commands: readonly CommandSpec[]) => string>> = {
  bash: bashCompletions,
  zsh: zshCompletions,
  fish: fishCompletions,
}

export const run: RunCommand = ({ positionals, stdout }) => {
  const [shell] = positionals
  const completions = shell === undefined ? undefined : shells[shell]
  if (completions === undefined || positionals.length > 1)
    throw new UsageError('Name one shell: kyc-tokend completions bash, zsh or fish.')
  stdout.write(completions(commands))
  return Promise.resolve(0)
}

/** Values that are files, by their placeholder. */
const FILES = new Set(['PATH', 'FILE'])

/** Prints the accounts that have a daemon on the host. */
const LIST_ACCOUNTS = 'ls /run/kyc-tokend/accounts 2>/dev/null'

const helpWord = { name: 'help', summary: 'Show the help' }

function optionsOf(spec: CommandSpec): [string, OptionSpec][] {
  return Object.entries({ ...spec.options, help: { type: 'boolean', summary: helpWord.summary } })
}

/** The values of an option that are known here. */
function valuesOf({ choices, suggestions }: OptionSpec): string | undefined {
  return (choices ?? suggestions)?.join(' ')
}

/** The values of a command's first argument, if it is a choice of words. */
function wordsOf(spec: CommandSpec): string[] {
  return /^[a-z]+(\|[a-z]+)+$/.test(spec.positionals ?? '') ? (spec.positionals ?? '').split('|') : []
}

// ---- bash -----------------------------------------------------------------------------------------------------------

function bashCompletions(specs: readonly CommandSpec[]): string {
  const names = specs.map(({ name }) => name).join(' ')
  const words = specs.map((spec) => {
    const offered = [...optionsOf(spec).map(([name]) => `--${name}`), ...wordsOf(spec)]
    return `    ${spec.name}) words='${offered.join(' ')}' ;;`
  })
  return `# kyc-tokend: completions for bash
_kyc_tokend() {
  local current=\${COMP_WORDS[COMP_CWORD]} previous=\${COMP_WORDS[COMP_CWORD-1]} command=\${COMP_WORDS[1]} words= index
  COMPREPLY=()
  # Of --format=raw bash makes three words.
  [[ $current == = ]] && current=
  [[ $previous == = ]] && previous=\${COMP_WORDS[COMP_CWORD-2]}
  if ((COMP_CWORD == 1)); then
    COMPREPLY=($(compgen -W '${names} help --help --version' -- "$current"))
    return
  fi
  for ((index = 2; index < COMP_CWORD; index++)); do
    if [[ $command == exec && \${COMP_WORDS[index]} == -- ]]; then
      if ((COMP_CWORD == index + 1)); then
        COMPREPLY=($(compgen -c -- "$current"))
      else
        compopt -o default 2>/dev/null
      fi
      return
    fi
  done
  case "$command $previous" in
${specs.flatMap(bashValues).join('\n')}
  esac
  case "$command" in
${words.join('\n')}
    help) words='${names}' ;;
  esac
  COMPREPLY=($(compgen -W "$words" -- "$current"))
}
complete -F _kyc_tokend kyc-tokend
`
}

function bashValues(spec: CommandSpec): string[] {
  return Object.entries(spec.options)
    .filter(([, option]) => option.type === 'string')
    .map(([name, option]) => {
      const values = valuesOf(option)
      if (values !== undefined)
        return `    '${spec.name} --${name}') COMPREPLY=($(compgen -W '${values}' -- "$current")); return ;;`
      if (name === 'account')
        return `    '${spec.name} --${name}') COMPREPLY=($(compgen -W "$(${LIST_ACCOUNTS})" -- "$current")); return ;;`
      if (FILES.has(option.value ?? ''))
        return `    '${spec.name} --${name}') compopt -o default 2>/dev/null; return ;;`
      return `    '${spec.name} --${name}') return ;;`
    })
}

// ---- zsh ------------------------------------------------------------------------------------------------------------

function zshCompletions(specs: readonly CommandSpec[]): string {
  const described = [...specs, helpWord].map(
    ({ name, summary }) => `    ${quoted(`${name}:${summary.replaceAll(':', '\\:')}`)}`,
  )
  const cases = specs.map(
    (spec) => `    ${spec.name}) _arguments -S ${zshArguments(spec).map(quoted).join(' ')} ;;`,
  )
  return `#compdef kyc-tokend
# kyc-tokend: completions for zsh
_kyc-tokend() {
  # "commands" and "options" are zsh's own.
  local -a our_commands=(
${described.join('\n')}
  )
  local -a our_options=('--help:Show the help' '--version:Show the version')
  if ((CURRENT == 2)); then
    _describe command our_commands
    _describe -o option our_options
    return
  fi
  local command=\${words[2]} end=\${words[(i)--]}
  if [[ $command == exec ]] && ((end < CURRENT)); then
    shift $end words
    ((CURRENT -= end))
    _normal
    return
  fi
  shift words
  ((CURRENT--))
  case $command in
${cases.join('\n')}
    help) ((CURRENT == 2)) && _describe command our_commands ;;
  esac
}
if [[ \${funcstack[1]} == _kyc-tokend ]]; then
  _kyc-tokend "$@"
else
  compdef _kyc-tokend kyc-tokend
fi
`
}

function zshArguments(spec: CommandSpec): string[] {
  const options = optionsOf(spec).map(([name, option]) => {
    const { type, value, summary, isRepeatable } = option
    const text = `[${summary.replaceAll(/[[\]:\\]/g, String.raw`\$&`)}]`
    if (type === 'boolean') return `--${name}${text}`
    // With "=" the value may be the next word or follow a "=".
    return `${isRepeatable === true ? '*' : ''}--${name}=${text}:${value ?? 'value'}:${zshAction(name, option)}`
  })
  const words = wordsOf(spec)
  if (words.length > 0) return [...options, `1:word:(${words.join(' ')})`]
  return options
}

function zshAction(name: string, option: OptionSpec): string {
  if (name === 'account') return `($(${LIST_ACCOUNTS}))`
  const values = valuesOf(option)
  if (values !== undefined) return `(${values})`
  return FILES.has(option.value ?? '') ? '_files' : ' '
}

// ---- fish -----------------------------------------------------------------------------------------------------------

function fishCompletions(specs: readonly CommandSpec[]): string {
  const names = specs.map(({ name }) => name).join(' ')
  const complete = (condition: string, what: string): string =>
    `complete -c kyc-tokend -n '${condition}' ${what}`
  const lines = specs.flatMap((spec) => [
    complete('__kyc_tokend_is', `-a ${spec.name} -d ${quoted(spec.summary)}`),
    ...optionsOf(spec).map(([name, option]) =>
      complete(
        `__kyc_tokend_is ${spec.name}`,
        `-l ${name}${fishValue(name, option)} -d ${quoted(option.summary)}`,
      ),
    ),
    ...wordsOf(spec).map((word) => complete(`__kyc_tokend_is ${spec.name}`, `-a ${word}`)),
  ])
  return `# kyc-tokend: completions for fish
function __kyc_tokend_is -d 'Whether this command was typed, and -- or not; without a name: whether none was'
  set -l words (commandline -opc)
  test "$words[2]" = "$argv[1]"; or return
  contains -- -- $words; set -l ended $status
  set -q argv[2]; and test $ended -eq 0; or test $ended -ne 0
end
function __kyc_tokend_exec -d 'What follows the -- of exec'
  set -l words (commandline -opc)
  set -l end (contains -i -- -- $words); or return
  set -e words[1..$end]
  set -l line (string join ' ' -- (string escape -- $words) (commandline -ct))
  complete -C "$line"
end
complete -c kyc-tokend -f
complete -c kyc-tokend -n __kyc_tokend_is -a help -d 'Show the help'
complete -c kyc-tokend -n __kyc_tokend_is -l help -d 'Show the help'
complete -c kyc-tokend -n __kyc_tokend_is -l version -d 'Show the version'
complete -c kyc-tokend -n '__kyc_tokend_is help' -a '${names}'
complete -c kyc-tokend -n '__kyc_tokend_is exec --' -a '(__kyc_tokend_exec)'
${lines.join('\n')}
`
}

function fishValue(name: string, option: OptionSpec): string {
  if (option.type === 'boolean') return ''
  if (name === 'account') return ` -x -a '(${LIST_ACCOUNTS})'`
  const values = valuesOf(option)
  if (values !== undefined) return ` -x -a '${values}'`
  return FILES.has(option.value ?? '') ? ' -r -F' : ' -x'
}

/** A word for zsh, in single quotes; fish takes the same where there is no quote in it. */
function quoted(text: string): string {
  return `'${text.replaceAll("'", String.raw`'\''`)}'`
}
