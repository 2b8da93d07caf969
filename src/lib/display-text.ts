// Text made fit to show, or to paste: no control character of others reaches a terminal or a log.

export const CONTROL_CHARACTER = /\p{Cc}/u

/** Control and formatting characters, separators of lines and paragraphs, what Unicode has not assigned. */
const UNSAFE = /[\p{C}\p{Zl}\p{Zp}]/gu

/** The text with every unsafe character as a JSON escape, so that it stays one line. */
export function escapeUnsafe(text: string): string {
  return text.replaceAll(UNSAFE, (character) =>
    character.replaceAll(/./gs, (unit) => `\\u${unit.charCodeAt(0).toString(16).padStart(4, '0')}`),
  )
}

/** With a full stop, unless it ends like a sentence already. */
export function asSentence(text: string): string {
  return /[.!?]$/.test(text) ? text : `${text}.`
}

/** A word that a person can paste into a shell. */
export function shellWord(text: string): string {
  return /^[\w./:@%+=,-]+$/.test(text) ? text : `'${text.replaceAll("'", String.raw`'\''`)}'`
}

/** The text in lines of at most `width` columns, unless a word is longer. */
export function wrap(text: string, width: number): string[] {
  return text.match(new RegExp(String.raw`\S.{0,${width - 1}}(?=\s|$)|\S+`, 'g')) ?? ['']
}
