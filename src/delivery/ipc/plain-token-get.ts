// The plain `token.get`, just as every library writes it and without a field beside `id`: recognised without being parsed.
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
  if (text === lastText) return lastId
  if (text.length > MAX_PLAIN_LENGTH || !text.startsWith(START) || !text.endsWith(END)) return null
  const id = text.slice(START.length, -END.length)
  if (!PLAIN_ID.test(id)) return null
  lastText = text
  lastId = id
  return id
}
let lastText = ''
let lastId = ''

/** The bytes as text, one character each. Node documents the long way only, which asks what encoding `latin1` is. */
export function latin1Text(bytes: Buffer, start: number, end: number): string {
  const { latin1Slice } = bytes as { latin1Slice?: (start: number, end: number) => string }
  return latin1Slice === undefined
    ? bytes.toString('latin1', start, end)
    : latin1Slice.call(bytes, start, end)
}
