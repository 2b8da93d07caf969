// Reads YAML, and locates where a text stops being JSON or YAML, in words that quote nothing of it.
import { LineCounter, parseDocument } from 'yaml'

/** The document of a text in YAML. Throws if it is none. */
export function parseYaml(text: string): unknown {
  const { document, faults } = parsed(text)
  if (faults.length > 0) throw faults[0]!
  return document.toJS()
}

function parsed(text: string) {
  const lines = new LineCounter()
  const document = parseDocument(text, { prettyErrors: false, lineCounter: lines })
  // A warning is a tag that is not known, such as that of a function.
  return { document, lines, faults: [...document.errors, ...document.warnings] }
}

/** The first fault of a text that is no JSON, or no YAML: `line 1, column 2: …`, with the remedy. */
export function locateFault(text: string, { isJson }: { isJson: boolean }): string {
  try {
    const { lines, faults } = parsed(text)
    const at = (offset: number): string => {
      const { line, col } = lines.linePos(offset)
      return `line ${line}, column ${col}`
    }
    const [fault] = faults
    // The codes of the library's errors are words.
    if (fault !== undefined)
      return `${at(fault.pos[0])}: ${fault.code.toLowerCase().replaceAll('_', ' ')}: correct it, or what is before it`
    // YAML that is no JSON.
    if (isJson) return `${at(JSON_TOKENS.exec(text)![0].length)}: ${ONLY_YAML}`
  } catch (error) {
    // The library gives up on what is nested without end.
    if (!(error instanceof RangeError)) throw error
  }
  return 'line 1, column 1: it is nested too deep, or has an alias that leads into itself: write it plainly'
}

const ONLY_YAML =
  'JSON has keys and texts in double quotes, no comma before a closing bracket, and no comments: ' +
  'correct it, or use a .yaml file'

/** The tokens of JSON, in any order, from the beginning of a text; no comma before a closing bracket. */
const JSON_TOKENS =
  /^(?:\s|[{}[\]:]|,(?!\s*[}\]])|"(?:[^"\\\p{Cc}]|\\["\\/bfnrtu])*"|(?:-?(?:0|[1-9]\d*)(?:\.\d+)?(?:[eE][+-]?\d+)?|true|false|null)(?![\w.+-]))*/u
