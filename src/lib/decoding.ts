// What a text says once its encodings are undone: percent, HTML, the escapes of JSON; and in it base64 and
// hex.

/** The most encodings one within the other. */
const MAX_DEPTH = 5
/** What comes after it is left as it is. */
const MAX_LENGTH = 64 * 1024
/** As long as the base64, or the hex, of eight bytes. */
const BASE64 = /[\w+/-]{11,}/g
const HEX = /^(?:[\da-f]{2}){8,}$/i

/**
 * The text without its escapes, then each decoded text in it, however deep. With random characters where it
 * only looked encoded.
 */
export function decodedForms(text: string): [unescaped: string, ...decoded: string[]] {
  return formsOf(text.slice(0, MAX_LENGTH), 0)
}

function formsOf(text: string, depth: number): [string, ...string[]] {
  const plain = unescaped(text)
  if (depth === MAX_DEPTH) return [plain]
  const inner = (plain.match(BASE64) ?? []).flatMap((run) => [
    Buffer.from(run, 'base64').toString(),
    ...(HEX.test(run) ? [Buffer.from(run, 'hex').toString()] : []),
  ])
  return [plain, ...inner.flatMap((form) => formsOf(form, depth + 1))]
}

function unescaped(text: string): string {
  let plain = text
  for (let times = 0; times < MAX_DEPTH; times += 1) {
    const next = withoutEntities(withoutBackslashes(withoutPercent(plain)))
    if (next === plain) break
    plain = next
  }
  return plain
}

function withoutPercent(text: string): string {
  return text.replaceAll(/(?:%[\da-f]{2})+/gi, (bytes) =>
    Buffer.from(bytes.replaceAll('%', ''), 'hex').toString(),
  )
}

const SHORT_ESCAPES: Readonly<Record<string, string>> = { b: '\b', f: '\f', n: '\n', r: '\r', t: '\t' }

/** Of JSON and JavaScript. */
function withoutBackslashes(text: string): string {
  return text.replaceAll(
    /\\(?:u([\da-f]{4})|u\{([\da-f]{1,6})\}|x([\da-f]{2})|([bfnrt"'\\/]))/gi,
    (_, unit?: string, point?: string, byte?: string, character = '') => {
      const digits = unit ?? point ?? byte
      return digits === undefined
        ? (SHORT_ESCAPES[character] ?? character)
        : characterOf(parseInt(digits, 16))
    },
  )
}

function withoutEntities(text: string): string {
  return text.replaceAll(
    /&(?:#(\d{1,7})|#x([\da-f]{1,6})|([a-z][a-z\d]{1,7}));?/gi,
    (entity, decimal?: string, hex?: string, name = '') => {
      if (decimal !== undefined) return characterOf(Number(decimal))
      if (hex !== undefined) return characterOf(parseInt(hex, 16))
      return NAMED.get(name) ?? entity
    },
  )
}

function characterOf(codePoint: number): string {
  return codePoint <= 0x10ffff ? String.fromCodePoint(codePoint) : '\uFFFD'
}

/** HTML's names of the punctuation of ASCII, and of the characters of Latin-1 from U+00A0 on. */
const NAMED: ReadonlyMap<string, string> = new Map([
  ...(
    'excl ! quot " num # dollar $ percnt % amp & apos \' lpar ( rpar ) ast * plus + comma , period . sol / ' +
    'colon : semi ; lt < equals = gt > quest ? commat @ lsqb [ lbrack [ bsol \\ rsqb ] rbrack ] Hat ^ ' +
    'lowbar _ grave ` lcub { lbrace { verbar | vert | rcub } rbrace }'
  )
    .match(/\S+ \S/g)!
    .map((pair) => pair.split(' ') as [string, string]),
  ...(
    'nbsp iexcl cent pound curren yen brvbar sect uml copy ordf laquo not shy reg macr deg plusmn sup2 sup3 ' +
    'acute micro para middot cedil sup1 ordm raquo frac14 frac12 frac34 iquest Agrave Aacute Acirc Atilde ' +
    'Auml Aring AElig Ccedil Egrave Eacute Ecirc Euml Igrave Iacute Icirc Iuml ETH Ntilde Ograve Oacute ' +
    'Ocirc Otilde Ouml times Oslash Ugrave Uacute Ucirc Uuml Yacute THORN szlig agrave aacute acirc atilde ' +
    'auml aring aelig ccedil egrave eacute ecirc euml igrave iacute icirc iuml eth ntilde ograve oacute ' +
    'ocirc otilde ouml divide oslash ugrave uacute ucirc uuml yacute thorn yuml'
  )
    .split(' ')
    .map((name, index): [string, string] => [name, String.fromCodePoint(0xa0 + index)]),
])
