// completions: a short script for bash, which asks this program for the words to offer.
import { accountNames } from '../host/account.ts'
import { UsageError } from '../lib/error.ts'
import type { CommandSpec, OptionSpec, RunCommand } from '../terminal/command.ts'

/** Printed instead of words: the shell offers files. */
const FILES = ':files'

const SCRIPT = `# kyc-tokend: completions for bash
_kyc_tokend() {
  local current=\${COMP_WORDS[COMP_CWORD]} IFS=$'\\n' offers
  offers=$(kyc-tokend completions offers -- "\${COMP_WORDS[@]:1:COMP_CWORD}" 2>/dev/null)
  if [[ $offers == ${FILES} ]]; then
    COMPREPLY=() && compopt -o default 2>/dev/null
  else
    COMPREPLY=($(compgen -W "$offers" -- "$current"))
  fi
}
complete -F _kyc_tokend kyc-tokend
`

/** The command that completes these commands. */
export function completionsOf(commands: readonly CommandSpec[]): RunCommand {
  return ({ positionals: [shell, ...words], stdout }) => {
    if (shell === 'bash') stdout.write(SCRIPT)
    else if (shell === 'offers') stdout.write(offersFor(words, commands).join(''))
    else throw new UsageError('Name the shell: kyc-tokend completions bash.')
    return Promise.resolve(0)
  }
}

/** The lines to offer for the last of the words. */
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
  const names = commands.map((spec) => spec.name)
  if (name === undefined) return [...names, 'help', '--version', '--help']
  if (name === 'help') return names
  const spec = commands.find((command) => command.name === name)
  if (spec === undefined) return []
  if (before.includes('--')) return [FILES]
  const last = before.at(-1) ?? ''
  const option = last.startsWith('--') ? spec.options[last.slice(2)] : undefined
  if (option?.value !== undefined) return valuesOf(option)
  return [...Object.keys(spec.options).map((word) => `--${word}`), '--help']
}

/** The values of an option that are known here. */
function valuesOf({ value, choices }: OptionSpec): readonly string[] {
  if (value === 'PATH' || value === 'FILE') return [FILES]
  return choices ?? (value === 'NAME' ? accountNames() : [])
}
