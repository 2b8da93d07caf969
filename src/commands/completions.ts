// completions: a short script for each shell, which asks this program for the words to offer.
import { accountNames } from '../lib/account.ts'
import { UsageError } from '../lib/error.ts'
import type { CommandSpec, OptionSpec, RunCommand } from './command.ts'
import { commands } from './specs.ts'

/** Instead of words: the shell offers files. */
const FILES = ':files'
/** Instead of words: the shell completes another command, whose name is the word of this number. */
const COMMAND = ':command'

const scripts: Readonly<Record<string, string>> = {
  bash: `# kyc-tokend: completions for bash
_kyc_tokend() {
  local current=\${COMP_WORDS[COMP_CWORD]} IFS=$'\\n' offers
  [[ $current == = ]] && current=
  offers=$(kyc-tokend completions offers -- "\${COMP_WORDS[@]:1:COMP_CWORD}" 2>/dev/null | cut -f1)
  case $offers in
    "${COMMAND} $COMP_CWORD") COMPREPLY=($(compgen -c -- "$current")) ;;
    ${FILES} | ${COMMAND}*) COMPREPLY=() && compopt -o default 2>/dev/null ;;
    *) COMPREPLY=($(compgen -W "$offers" -- "$current")) ;;
  esac
}
complete -F _kyc_tokend kyc-tokend
`,
  zsh: `#compdef kyc-tokend
# kyc-tokend: completions for zsh
_kyc-tokend() {
  local -a offers=("\${(@f)$(kyc-tokend completions offers -- "\${(@)words[2,CURRENT]}" 2>/dev/null)}")
  case \${offers[1]} in
    '') ;;
    ${FILES}) compset -P '*='; _files ;;
    ${COMMAND}*)
      local before=\${offers[1]#${COMMAND} }
      shift $before words
      ((CURRENT -= before))
      _normal
      ;;
    *)
      offers=("\${(@)offers//:/\\\\:}")
      offers=("\${(@)offers/$'\\t'/:}")
      _describe word offers
      ;;
  esac
}
if [[ \${funcstack[1]} == _kyc-tokend ]]; then
  _kyc-tokend "$@"
else
  compdef _kyc-tokend kyc-tokend
fi
`,
  fish: `# kyc-tokend: completions for fish
function __kyc_tokend_offers
  set -l words (commandline -opc)
  set -l current (commandline -ct)
  set -l offers (kyc-tokend completions offers -- $words[2..] "$current" 2>/dev/null)
  switch "$offers[1]"
    case '${FILES}'
      __fish_complete_path (string replace -r -- '^--[a-z-]+=' '' "$current")
    case '${COMMAND}*'
      set -e words[1..(string replace '${COMMAND} ' '' $offers[1])]
      complete -C (string join ' ' -- (string escape -- $words) "$current")
    case '*'
      string join -- \\n $offers
  end
end
complete -c kyc-tokend -f -a '(__kyc_tokend_offers)'
`,
}

export const run: RunCommand = ({ positionals, stdout }) => {
  const [shell = '', ...words] = positionals
  if (shell === 'offers') {
    stdout.write(
      offersFor(words)
        .map((line) => `${line}\n`)
        .join(''),
    )
    return Promise.resolve(0)
  }
  const script = Object.hasOwn(scripts, shell) ? scripts[shell] : undefined
  if (script === undefined || words.length > 0)
    throw new UsageError('Name one shell: kyc-tokend completions bash, zsh or fish.')
  stdout.write(script)
  return Promise.resolve(0)
}

/** The words to offer for the last of these, which follow the program's name: a line each, with a tab and the meaning. */
function offersFor(typed: readonly string[]): string[] {
  const end = typed[0] === 'exec' ? typed.indexOf('--') : -1
  if (end >= 0 && end < typed.length - 1) return [`${COMMAND} ${end + 2}`]
  // Of --format=raw bash makes three words.
  const words = typed.at(-1) === '=' ? [...typed.slice(0, -1), ''] : typed.filter((word) => word !== '=')
  const current = words.at(-1) ?? ''
  const [name = '', ...before] = words.slice(0, -1)
  const described = commands.map((spec) => `${spec.name}\t${spec.summary}`)
  if (words.length < 2)
    return startingWith(current, [
      ...(current.startsWith('-') ? ['--version\tShow the version'] : described),
      `${current.startsWith('-') ? '--' : ''}help\tShow the help`,
    ])
  if (name === 'help') return startingWith(current, described)
  const spec = commands.find((command) => command.name === name)
  return spec === undefined ? [] : argumentsOf(spec, { current, last: before.at(-1) ?? '' })
}

function argumentsOf(spec: CommandSpec, { current, last }: { current: string; last: string }): string[] {
  const optionOf = (word: string): OptionSpec | undefined => spec.options[word.replace(/^--/, '')]
  const [, inline = '', value = ''] = /^(--[a-z-]+)=(.*)$/.exec(current) ?? []
  if (inline !== '') {
    const values = valuesOf(optionOf(inline))
    return values[0] === FILES ? values : startingWith(value, values).map((one) => `${inline}=${one}`)
  }
  if (last.startsWith('--') && optionOf(last)?.type === 'string') {
    const values = valuesOf(optionOf(last))
    return values[0] === FILES ? values : startingWith(current, values)
  }
  const choice = /^[a-z]+(\|[a-z]+)+$/.test(spec.positionals ?? '') ? spec.positionals!.split('|') : []
  if (choice.length > 0 && !current.startsWith('-')) return startingWith(current, choice)
  const options = Object.entries(spec.options).map(([name, { summary }]) => `--${name}\t${summary}`)
  return startingWith(current, [...options, '--help\tShow the help'])
}

/** The values of an option that are known here. */
function valuesOf(option: OptionSpec | undefined): string[] {
  if (option === undefined || option.type === 'boolean') return []
  if (option.value === 'PATH' || option.value === 'FILE') return [FILES]
  if (option.value === 'NAME' && option.choices === undefined) return accountNames()
  return [...(option.choices ?? option.suggestions ?? [])]
}

function startingWith(current: string, offers: readonly string[]): string[] {
  return offers.filter((offer) => offer.startsWith(current))
}
