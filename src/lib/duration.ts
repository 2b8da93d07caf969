// Durations and instants as people write them: "500ms", "30s", "1d"; "2027-03-01", "2027-03-01T12:00Z".

export const HOUR_MS = 3_600_000
export const DAY_MS = 24 * HOUR_MS

const UNIT_MS = { ms: 1, s: 1_000, m: 60_000, h: HOUR_MS, d: DAY_MS } as const

export const DURATION = /^(\d+(?:\.\d+)?)(ms|s|m|h|d)$/

/** Milliseconds of a duration such as "30s" or "0.5h"; undefined if the text is none. */
export function parseDuration(text: string): number | undefined {
  const match = DURATION.exec(text.trim())
  if (match === null) return undefined
  const ms = Number(match[1]) * UNIT_MS[match[2] as keyof typeof UNIT_MS]
  return Number.isFinite(ms) ? ms : undefined
}

/** Formats a duration for people, in its two largest units: "2 h 5 min", "41 s", "0.3 s". */
export function formatDuration(ms: number): string {
  if (ms < 1_000) return `${(Math.max(0, ms) / 1_000).toFixed(1)} s`
  const seconds = Math.round(ms / 1_000)
  const parts = [
    [Math.floor(seconds / 86_400), 'd'],
    [Math.floor(seconds / 3_600) % 24, 'h'],
    [Math.floor(seconds / 60) % 60, 'min'],
    [seconds % 60, 's'],
  ] as const
  const first = parts.findIndex(([count]) => count > 0)
  return parts
    .slice(first, first + 2)
    .filter(([count]) => count > 0)
    .map(([count, unit]) => `${count} ${unit}`)
    .join(' ')
}

const DAY = /^\d{4}-\d{2}-\d{2}$/
/** ISO 8601 with its zone; seconds may be left out. */
const INSTANT = /^\d{4}-\d{2}-\d{2}[T ]\d{2}:\d{2}(?::\d{2}(?:[.,]\d{1,9})?)?(?:Z|[+-]\d{2}:?\d{2})$/i

/** Ms since the epoch of a date with time and zone, or of a day's end (UTC); undefined: it is neither. */
export function parseInstant(text: string): number | undefined {
  const isDay = DAY.test(text)
  if (!isDay && !INSTANT.test(text)) return undefined
  const day = text.slice(0, 10)
  const dayMs = Date.parse(day)
  const ms = Date.parse(isDay ? text : text.replace(' ', 'T').replace(',', '.').toUpperCase())
  // V8 takes 30 February for 2 March.
  if (Number.isNaN(ms) || new Date(dayMs).toISOString().slice(0, 10) !== day) return undefined
  return isDay ? ms + DAY_MS : ms
}
