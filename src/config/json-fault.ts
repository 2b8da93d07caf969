// Locates where a text stops being JSON or repeats a key, in words that quote nothing of it.
import { printParseErrorCode, visit } from 'jsonc-parser'

const MAX_DEPTH = 200

/** Ends the visit at the first fault. */
class Fault extends Error {}

/** The first fault, as `line 1, column 2: …`. A repeated key is one, although JSON.parse lets it pass. */
export function findJsonFault(text: string): string | undefined {
  /** The keys so far of each object or list that is open. */
  const open: Set<string>[] = []
  const stop = (line: number, column: number, sentence: string): never => {
    throw new Fault(`line ${line + 1}, column ${column + 1}: ${sentence}`)
  }
  const enter = (_offset: number, _length: number, line: number, column: number): void => {
    if (open.push(new Set()) > MAX_DEPTH) stop(line, column, `is nested more than ${MAX_DEPTH} levels deep`)
  }
  const leave = (): void => void open.pop()
  try {
    visit(
      text,
      {
        onObjectBegin: enter,
        onArrayBegin: enter,
        onObjectEnd: leave,
        onArrayEnd: leave,
        onObjectProperty: (key, _offset, _length, line, column) => {
          if (open.at(-1)!.has(key))
            stop(line, column, 'the same key is above already: remove one of the two')
          open.at(-1)!.add(key)
        },
        onError: (code, offset, _length, line, column) =>
          stop(line, column, sentenceOf(printParseErrorCode(code), text, offset)),
      },
      { disallowComments: true },
    )
  } catch (error) {
    if (error instanceof Fault) return error.message
    throw error
  }
  return undefined
}

const SENTENCES: Readonly<Record<string, string>> = {
  PropertyNameExpected: 'a key in double quotes should be here: there is no comma before a "}"',
  ValueExpected: 'a value should be here: there is no comma before a "]"',
  InvalidSymbol: 'keys and texts are in double quotes',
  ColonExpected: '":" should be here',
  EndOfFileExpected: 'nothing more should be here',
  InvalidCommentToken: 'JSON has no comments: remove it, or use a .yaml file',
  UnexpectedEndOfString: 'this string is not closed on its line: write a line break in it as \\n',
  InvalidCharacter: 'this string holds a control character: write a tab in it as \\t',
  InvalidEscapeCharacter: 'a backslash in this string must be written twice',
  UnexpectedEndOfNumber: 'this is not a number as JSON has it',
  InvalidUnicode: '\\u in this string must be followed by four hexadecimal digits',
}

function sentenceOf(code: string, text: string, offset: number): string {
  const expected = SENTENCES[code] ?? '"," or the closing bracket should be here'
  // What follows the colon is about text that is there.
  return offset >= text.length ? `the file ends too early: ${expected.split(': ', 1)[0]}` : expected
}
