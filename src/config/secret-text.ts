// What a secret may hold, and the mistakes that people make with secrets.
import { CONTROL_CHARACTER } from '../lib/display-text.ts'

/** Each sentence follows the name of the source. */
type Sentences = readonly (readonly [RegExp, string])[]

/** Values that cannot be used. */
const REFUSALS: Sentences = [
  [/^\s*$/, 'is empty: put the secret there'],
  [CONTROL_CHARACTER, 'holds a line break or another control character: write the secret alone, on one line'],
  [
    // Formatting characters and line separators: the service would refuse the account for them.
    /[\p{Cf}\p{Zl}\p{Zp}]/u,
    'holds an invisible character, such as a byte order mark ("BOM"), or one that came along from a page: ' +
      'type the secret, or copy it again',
  ],
  [/\uFFFD/, 'is not valid UTF-8: write the secret as plain text'],
]
/** Mistakes that people make with secrets. Only warnings: such a secret may be right. */
const MISTAKES: Sentences = [
  [/^(["'`]).*\1$/, 'is in quotes, which are part of it: write the secret without them'],
  [/^\s|\s$/, 'begins or ends with a blank, which is part of it: remove that'],
  [
    /^(export\s+)?[A-Z][A-Z0-9_]*\s*=./,
    'begins with a name and "=", as a line of an environment file does: write what follows the "=" alone',
  ],
  [/^Bearer\s/i, 'begins with "Bearer", as a token does: write the secret of the account'],
  [
    /^.{1,7}$/,
    'has fewer than 8 characters: check that it is whole; words like it are hidden in the log, too',
  ],
]

/** Why a secret cannot be used, as the words that follow the name of its source. */
export function secretRefusal(value: string): string | undefined {
  return sentenceFor(value, REFUSALS)
}

/** What is probably wrong with a secret, likewise. */
export function probableMistake(value: string): string | undefined {
  return sentenceFor(value, MISTAKES)
}

function sentenceFor(value: string, sentences: Sentences): string | undefined {
  return sentences.find(([pattern]) => pattern.test(value))?.[1]
}

/** One newline at the end is how editors and `echo` end a file. */
export function withoutNewline(text: string): string {
  return text.replace(/\r?\n$/, '')
}
