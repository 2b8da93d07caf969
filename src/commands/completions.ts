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
    ${FILES}) _files ;;
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
    __fish_complete_path "$current"
  else
    string join -- \\n $offers
  end
end
complete -c kyc-tokend -f -a '(__kyc_tokend_offers)'
`,
}

/** The command that completes these commands. */
export function completionsOf(commands: readonly CommandSpec[]): RunCommand {
  return ({ positionals: [shell = '', ...words], stdout }) => {
    const script = Object.hasOwn(scripts, shell) ? scripts[shell] : undefined
    if (script === undefined && shell !== 'offers')
      throw new UsageError('Name one shell: kyc-tokend completions bash, zsh or fish.')
    stdout.write(script ?? offersFor(words, commands).join(''))
    return Promise.resolve(0)
  }
}

/** The lines to offer for the last of the words: each is a word, and its meaning after a tab. */
function offersFor(words: readonly string[], commands: readonly CommandSpec[]): string[] {
  const current = words.at(-1) ?? ''
  const candidates = candidatesAfter(words.slice(0, -1), commands)
  const offers = candidates.filter((offer) => offer === FILES || offer.startsWith(current))
  return offers.map((offer) => `${offer}\n`)
}

function candidatesAfter(
  [name, ...before]: readonly string[],
  commands: readonly CommandSpec[],
): readonly string[] {
  const described = commands.map((spec) => `${spec.name}\t${spec.summary}`)
  if (name === undefined) return [...described, 'help\tShow the help', '--version\tShow the version', HELP]
  if (name === 'help') return described
  const spec = commands.find((command) => command.name === name)
  if (spec === undefined) return []
  if (before.includes('--')) return [FILES]
  const last = before.at(-1) ?? ''
  const option = last.startsWith('--') ? spec.options[last.slice(2)] : undefined
  if (option?.value !== undefined) return valuesOf(option)
  if (spec.name === 'completions') return Object.keys(scripts)
  return [...Object.entries(spec.options).map(([word, { summary }]) => `--${word}\t${summary}`), HELP]
}

/** The values of an option that are known here. */
function valuesOf({ value, choices }: OptionSpec): readonly string[] {
  if (value === 'PATH' || value === 'FILE') return [FILES]
  return choices ?? (value === 'NAME' ? accountNames() : [])
}
