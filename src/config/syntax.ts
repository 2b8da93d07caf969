// Reads YAML, and locates where a text stops being JSON or YAML, in words that quote nothing of it.
import { isCollection, isNode, isScalar, LineCounter, parseDocument, visit, type Document } from 'yaml'
import { parseJson } from '../lib/input.ts'

/** The document of a text in YAML. Throws if it is none. */
export function parseYaml(text: string): unknown {
  const document = parsed(text)
  if (document.errors.length > 0) throw document.errors[0]!
  return document.toJS()
}

function parsed(text: string): Document {
  const document = parseDocument(text, { prettyErrors: false })
  // A tag that is not known, such as that of a function.
  document.errors.push(...(document.warnings as unknown as typeof document.errors))
  return document
}

/** The first fault of a text that is no JSON, or no YAML: `line 1, column 2: …`, with the remedy. */
export function locateFault(text: string, { isJson }: { isJson: boolean }): string {
  try {
    const document = parsed(text)
    const [error] = document.errors
    if (error !== undefined) return at(text, error.pos[0], wordsOf(error.code))
    const offset = isJson ? offsetOfYaml(document, text) : undefined
    if (offset !== undefined) return at(text, offset, ONLY_YAML)
  } catch (error) {
    // The library gives up on what is nested without end.
    if (!(error instanceof RangeError)) throw error
  }
  return at(text, 0, 'it is nested too deep, or has an alias that leads into itself: write it plainly')
}

const ONLY_YAML =
  'JSON has keys and texts in double quotes, no comma before a closing bracket, and no comments: ' +
  'correct it, or use a .yaml file'

/** The codes of the library's errors are words. */
function wordsOf(code: string): string {
  return `${code.toLowerCase().replaceAll('_', ' ')}: correct what is there or before it`
}

function at(text: string, offset: number, words: string): string {
  const lines = new LineCounter()
  for (const { index } of text.matchAll(/^/gm)) lines.addNewLine(index)
  const { line, col } = lines.linePos(offset)
  return `line ${line}, column ${col}: ${words}`
}

/** The offset of the first thing in a text of YAML that JSON does not have. */
function offsetOfYaml(document: Document, text: string): number | undefined {
  let first: number | undefined
  visit(document, (key, node) => {
    if (!isNode(node) || !node.range) return undefined
    const [start, end] = node.range
    const source = text.slice(start, end)
    if (isCollection(node) && node.flow && !/,\s*.$/s.test(source)) return undefined
    if (isScalar(node) && parseJson(source) !== undefined && (key !== 'key' || source.startsWith('"')))
      return undefined
    first = isCollection(node) && node.flow ? end - 1 : start
    return visit.BREAK
  })
  return first
}
