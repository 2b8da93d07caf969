// The end of key and secret, or of the client certificate: told 30, 7 and 1 days before it comes, and when it
// has come.
import type { Config } from '../config/config.ts'
import { DAY_MS } from '../lib/duration.ts'
import type { Log } from '../lib/log.ts'
import type { StatusResult } from '../protocol.ts'

/** As a status has it. `pair`: `credentials.expiresAt`. `certificate`: the client certificate. */
type End = NonNullable<StatusResult['daemon']['credentials']>

/** The days before the end on which it is told, the last first. */
const TOLD_DAYS = [0, 1, 7, 30]

export const endRemedies: Readonly<Record<End['what'], string>> = {
  pair:
    'Make another pair where the service issues them, write it where the configuration reads the secrets ' +
    'from, and set `credentials.expiresAt` to its end',
  certificate:
    'Have the client certificate renewed, and write it and its key over the files of ' +
    '`request.clientCertificate`: they are tried within 30 s',
}

/** The first end by which the service stops to know the account; null: none is known. */
export function credentialsEnd({ endsAtMs }: Pick<Config, 'endsAtMs'>, wallMs: number): End | null {
  const { pair, certificate } = endsAtMs
  const atMs = Math.min(pair ?? Infinity, certificate ?? Infinity)
  if (atMs === Infinity) return null
  return {
    what: atMs === pair ? 'pair' : 'certificate',
    expiresAt: new Date(atMs).toISOString(),
    // Begun days count; 0: it has come.
    daysLeft: Math.max(0, Math.ceil((atMs - wallMs) / DAY_MS)),
  }
}

/** Reports the end in the log. Nobody is woken by it, and nothing is refused for it. */
export function createCredentialsEnd(options: {
  readonly config: () => Pick<Config, 'endsAtMs'>
  readonly wallMs: () => number
  readonly log: Log
}) {
  const { config, wallMs, log } = options
  /** The end and the day on which it was told last. */
  let told = ''
  const current = (): End | null => credentialsEnd(config(), wallMs())
  return {
    current,
    tick(): void {
      const end = current()
      const day = end && TOLD_DAYS.find((days) => end.daysLeft <= days)
      const telling = `${end?.what} ${end?.expiresAt} ${day}`
      if (end === null || day === undefined || telling === told) return
      told = telling
      log('warning', 'The credentials for the service come to their end', {
        event: 'credentials-expire',
        ...end,
        remedy: endRemedies[end.what],
      })
    },
  }
}
