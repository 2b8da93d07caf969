// The plain `token.get`, just as every library writes it and without a field beside `id`: recognised without being parsed.
import { hasJit } from '../../lib/jit.ts'
import { FRAME_END, MAX_ID_LENGTH } from '../../protocol.ts'

const START = '{"type":"token.get","data":{"id":"'
const END = `"}}${FRAME_END}`
/** Ids that are the same in JSON. */
export const PLAIN_ID = /^[\w.:-]+$/
/** No longer text can be one. */
export const MAX_PLAIN_LENGTH = START.length + MAX_ID_LENGTH + END.length

/**
 * The id, where the text is exactly one such request; else null, and the text is to be parsed. Many clients use one id
 * over and over, so the last request is compared as a whole.
 */
export function plainTokenGetId(text: string): string | null {
  if (text === lastText) {
    lastWords ??= wordsOf(text)
    return lastId
  }
  if (text.length > MAX_PLAIN_LENGTH || !text.startsWith(START) || !text.endsWith(END)) return null
  const id = text.slice(START.length, -END.length)
  if (!PLAIN_ID.test(id)) return null
  lastText = text
  lastId = id
  lastWords = null
  return id
}
let lastText = ''
let lastId = ''
/** The words of the last request, once it has come twice. */
let lastWords: readonly number[] | null = null

/**
 * The id, where the bytes are those of the last request, which has come twice; else null. They are compared as words of eight
 * bytes, the last of which may overlap the one before: to make a text of them takes a tenth of the time of the whole request.
 * In a plain request no word is zero or NaN, so that words are equal where their bytes are. Without JIT the text is quicker.
 */
export function repeatedTokenGetId(buffer: Buffer, length: number): string | null {
  if (!hasJit || lastWords === null || length !== lastText.length) return null
  if (buffer !== viewed) {
    viewed = buffer
    view = new DataView(buffer.buffer, buffer.byteOffset, buffer.length)
  }
  const end = length - WORD_BYTES
  let index = 0
  for (let at = 0; at < end; at += WORD_BYTES) {
    if (view.getFloat64(at) !== lastWords[index]) return null
    index += 1
  }
  return view.getFloat64(end) === lastWords[index] ? lastId : null
}
const WORD_BYTES = 8
/** Nearly always the one into which all connections are read. */
let viewed: Buffer | null = null
let view: DataView = new DataView(new ArrayBuffer(0))

function wordsOf(text: string): number[] {
  const bytes = Buffer.from(text, 'latin1')
  const words: number[] = []
  const end = bytes.length - WORD_BYTES
  for (let at = 0; at < end; at += WORD_BYTES) words.push(bytes.readDoubleBE(at))
  return [...words, bytes.readDoubleBE(end)]
}

/** The bytes as text, one character each. Node documents the long way only, which asks what encoding `latin1` is. */
export function latin1Text(bytes: Buffer, start: number, end: number): string {
  const { latin1Slice } = bytes as { latin1Slice?: (start: number, end: number) => string }
  return latin1Slice === undefined
    ? bytes.toString('latin1', start, end)
    : latin1Slice.call(bytes, start, end)
}
