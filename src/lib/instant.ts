// Instants as texts of others have them.

const DAY_MS = 86_400_000
const DAY = /^\d{4}-\d{2}-\d{2}$/
/** ISO 8601 with its zone; seconds may be left out. */
const INSTANT = /^\d{4}-\d{2}-\d{2}[T ]\d{2}:\d{2}(?::\d{2}(?:[.,]\d{1,9})?)?(?:Z|[+-]\d{2}:?\d{2})$/i

/** Ms since the epoch of a date with time and zone, or of the end of a day in UTC; undefined if the text is neither. */
export function parseInstant(text: string): number | undefined {
  const isDay = DAY.test(text)
  if (!isDay && !INSTANT.test(text)) return undefined
  const ms = Date.parse(isDay ? text : text.replace(' ', 'T').replace(',', '.').toUpperCase())
  // V8 takes 30 February for 2 March.
  if (Number.isNaN(ms) || (isDay && new Date(ms).toISOString().slice(0, 10) !== text)) return undefined
  return isDay ? ms + DAY_MS : ms
}
