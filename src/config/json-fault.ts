// Finds where a text stops being JSON or is ambiguous, and says what is there in words that quote nothing of it.

export interface JsonFault {
  /** From 1. */
  readonly line: number
  /** From 1, in characters. */
  readonly column: number
  readonly sentence: string
}

const SPACE = /[ \t\n\r]*/y
const NUMBER = /-?(?:0|[1-9]\d*)(?:\.\d+)?(?:[eE][+-]?\d+)?/y
const WORD = /true|false|null/y
const STRING = /"(?:[^"\\\u0000-\u001f]|\\(?:["\\/bfnrt]|u[0-9a-fA-F]{4}))*"/y
/** As much of a string as is sound, to point at the character that is not. */
const STRING_START = /"(?:[^"\\\u0000-\u001f]|\\(?:["\\/bfnrt]|u[0-9a-fA-F]{4}))*/y

/** What is expected where a key is there twice. */
const REPEATED = 'another key'

class Stop {
  readonly at: number
  readonly expected: string
  constructor(at: number, expected: string) {
    this.at = at
    this.expected = expected
  }
}

/** The first fault of a text, be it that a key is there twice, which JSON.parse would let pass; the grammar is RFC 8259. */
export function findJsonFault(text: string): JsonFault | undefined {
  try {
    const end = skip(SPACE, text, value(text, skip(SPACE, text, 0), 0))
    if (end === text.length) return undefined
    return describe(text, new Stop(end, 'nothing more'))
  } catch (stop) {
    if (stop instanceof Stop) return describe(text, stop)
    throw stop
  }
}

/** Each of these takes the index where something begins and gives the index after it. */
function value(text: string, at: number, depth: number): number {
  if (depth > 200) throw new Stop(at, 'less nesting')
  if (text[at] === '{') return members(text, at, { close: '}', member: distinctPairs(), depth })
  if (text[at] === '[') return members(text, at, { close: ']', member: value, depth })
  if (text[at] === '"') return string(text, at)
  for (const shape of [NUMBER, WORD]) {
    const end = skip(shape, text, at)
    if (end > at) return end
  }
  throw new Stop(at, 'a value')
}

function members(
  text: string,
  open: number,
  kind: { close: string; member: typeof value; depth: number },
): number {
  let at = skip(SPACE, text, open + 1)
  if (text[at] === kind.close) return at + 1
  for (;;) {
    at = skip(SPACE, text, kind.member(text, at, kind.depth + 1))
    if (text[at] === kind.close) return at + 1
    if (text[at] !== ',') throw new Stop(at, `"," or "${kind.close}"`)
    at = skip(SPACE, text, at + 1)
  }
}

/** The pairs of one object. */
function distinctPairs(): typeof value {
  const keys = new Set<unknown>()
  return (text, at, depth) => {
    if (text[at] !== '"') throw new Stop(at, 'a key in double quotes')
    const end = string(text, at)
    const key: unknown = JSON.parse(text.slice(at, end))
    if (keys.has(key)) throw new Stop(at, REPEATED)
    keys.add(key)
    const colon = skip(SPACE, text, end)
    if (text[colon] !== ':') throw new Stop(colon, '":"')
    return value(text, skip(SPACE, text, colon + 1), depth)
  }
}

function string(text: string, at: number): number {
  const end = skip(STRING, text, at)
  if (end > at) return end
  throw new Stop(skip(STRING_START, text, at), 'the end of the string')
}

function skip(shape: RegExp, text: string, at: number): number {
  shape.lastIndex = at
  return at + (shape.exec(text)?.[0].length ?? 0)
}

function describe(text: string, stop: Stop): JsonFault {
  const before = text.slice(0, stop.at).split('\n')
  return { line: before.length, column: before.at(-1)!.length + 1, sentence: inWords(text, stop) }
}

/** Only punctuation is named: anything else may be a piece of a secret. */
function inWords(text: string, { at, expected }: Stop): string {
  const found = text[at]
  if (found === undefined) return `the file ends where ${expected} should be`
  if (expected === REPEATED) return 'the same key is above already: remove one of the two'
  if (expected === 'the end of the string')
    return found === '\\'
      ? 'a backslash in a string must be written twice'
      : 'a string is not closed, or holds a line break or tab that must be written as \\n or \\t'
  if (found === '/' || found === '#') return 'JSON has no comments: remove it, or use a .yaml file'
  if (found === "'") return 'JSON has double quotes only'
  if ((found === '}' || found === ']') && /,\s*$/.test(text.slice(0, at)))
    return `there is a comma too many before "${found}"`
  return `${expected} should be here`
}
