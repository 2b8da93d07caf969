// completions: a short script for each shell, which asks this program for the words to offer.
import { accountNames } from '../lib/account.ts'
import { UsageError } from '../lib/error.ts'
import type { CommandSpec, OptionSpec, RunCommand } from './command.ts'

/** Printed instead of words: the shell offers files. */
const FILES = ':files'
const HELP = '--help\tShow the help'

const scripts: Readonly<Record<string, string>> = {
  bash: `# kyc-tokend: completions for bash
_kyc_tokend() {
  local current=\${COMP_WORDS[COMP_CWORD]} IFS=$'\\n' offers
  [[ $current == = ]] && current=
  offers=$(kyc-tokend completions offers -- "\${COMP_WORDS[@]:1:COMP_CWORD}" 2>/dev/null | cut -f1)
  if [[ $offers == ${FILES} ]]; then
    COMPREPLY=() && compopt -o default 2>/dev/null
  else
    COMPREPLY=($(compgen -W "$offers" -- "$current"))
  fi
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
  if test "$offers[1]" = '${FILES}'
    __fish_complete_path (string replace -r -- '^--[a-z-]+=' '' "$current")
  else
    string join -- \\n $offers
  end
end
complete -c kyc-tokend -f -a '(__kyc_tokend_offers)'
`,
}

/** The command that completes these commands. */
export function completionsOf(commands: readonly CommandSpec[]): RunCommand {
  return ({ positionals, stdout }) => {
    const [shell = '', ...words] = positionals
    const script = Object.hasOwn(scripts, shell) && words.length === 0 ? scripts[shell] : undefined
    if (script === undefined && shell !== 'offers')
      throw new UsageError('Name one shell: kyc-tokend completions bash, zsh or fish.')
    const offers = offersFor(words, commands).map((line) => `${line}\n`)
    stdout.write(script ?? offers.join(''))
    return Promise.resolve(0)
  }
}

/** The lines to offer for the last of the words after the program's name: each is a word, a tab and its meaning. */
function offersFor(typed: readonly string[], commands: readonly CommandSpec[]): string[] {
  // bash splits --format=raw into three words.
  const words = typed.at(-1) === '=' ? [...typed.slice(0, -1), ''] : typed.filter((word) => word !== '=')
  const current = words.at(-1) ?? ''
  const offers = candidatesFor(current, words.slice(0, -1), commands)
  return offers.filter((offer) => offer === FILES || offer.startsWith(current))
}

function candidatesFor(
  current: string,
  [name, ...before]: readonly string[],
  commands: readonly CommandSpec[],
): readonly string[] {
  const described = commands.map((spec) => `${spec.name}\t${spec.summary}`)
  if (name === 'help') return described
  if (name === undefined)
    return current.startsWith('-')
      ? ['--version\tShow the version', HELP]
      : [...described, 'help\tShow the help']
  const spec = commands.find((command) => command.name === name)
  if (spec === undefined) return []
  if (before.includes('--')) return [FILES]
  const optionOf = (word: string): OptionSpec | undefined => spec.options[word.replace(/^--/, '')]
  const [, inline] = /^(--[a-z-]+)=/.exec(current) ?? []
  if (inline !== undefined)
    return valuesOf(optionOf(inline)).map((value) => (value === FILES ? value : `${inline}=${value}`))
  const last = before.at(-1) ?? ''
  if (last.startsWith('--') && optionOf(last)?.value !== undefined) return valuesOf(optionOf(last))
  if (/^[a-z]+(\|[a-z]+)+$/.test(spec.positionals ?? '') && !current.startsWith('-'))
    return spec.positionals!.split('|')
  return [...Object.entries(spec.options).map(([option, { summary }]) => `--${option}\t${summary}`), HELP]
}

/** The values of an option that are known here. */
function valuesOf(option: OptionSpec | undefined): readonly string[] {
  if (option?.value === undefined) return []
  if (option.value === 'PATH' || option.value === 'FILE') return [FILES]
  if (option.value === 'NAME' && option.choices === undefined) return accountNames()
  return option.choices ?? option.suggestions ?? []
}
