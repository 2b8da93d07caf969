// The end of key and secret, or of the client certificate: told 30, 7 and 1 days before it comes, and when it has come.
import type { Config } from '../config/config.ts'
import { DAY_MS } from '../lib/duration.ts'
import type { Log } from '../lib/log.ts'
import type { StatusResult } from '../protocol.ts'

/** `pair`: `credentials.expiresAt`. `certificate`: the client certificate. */
interface End {
  readonly what: 'pair' | 'certificate'
  /** In ms since the epoch. */
  readonly atMs: number
}

/** The first end by which the service stops to know the account; null: none is known. */
export function credentialsEnd({ endsAtMs }: Pick<Config, 'endsAtMs'>): End | null {
  const { pair, certificate } = endsAtMs
  if (certificate !== null && certificate < (pair ?? Infinity))
    return { what: 'certificate', atMs: certificate }
  return pair === null ? null : { what: 'pair', atMs: pair }
}

/** The same as a status has it. */
export function describeEnd(
  end: End | null,
  wallMs: number,
): NonNullable<StatusResult['daemon']['credentials']> | null {
  if (end === null) return null
  const { what, atMs } = end
  return { what, expiresAt: new Date(atMs).toISOString(), daysLeft: daysLeft(end, wallMs) }
}

/** Begun days count; 0: it has come. */
function daysLeft({ atMs }: End, wallMs: number): number {
  return Math.max(0, Math.ceil((atMs - wallMs) / DAY_MS))
}

/** The days before the end on which it is told, the last first. */
const TOLD_DAYS = [0, 1, 7, 30]

export const endRemedies: Readonly<Record<End['what'], string>> = {
  pair: 'Make another pair where the service issues them, write it where the configuration reads the secrets from, and set `credentials.expiresAt` to its end',
  certificate:
    'Have the client certificate renewed, and write it and its key over the files of `request.clientCertificate`: they are tried within 30 s',
}

/** Reports the end in the log. Nobody is woken by it, and nothing is refused for it. */
export function createCredentialsEnd({
  config,
  wallMs,
  log,
}: {
  readonly config: () => Pick<Config, 'endsAtMs'>
  readonly wallMs: () => number
  readonly log: Log
}) {
  /** The end and the day on which it was told last. */
  let told = ''
  return {
    current: (): End | null => credentialsEnd(config()),
    tick(): void {
      const end = credentialsEnd(config())
      const left = end === null ? Infinity : daysLeft(end, wallMs())
      const day = TOLD_DAYS.find((days) => left <= days)
      if (end === null || day === undefined) return
      const { what, atMs } = end
      const telling = [what, atMs, day].join(' ')
      if (telling === told) return
      told = telling
      log('warning', 'The credentials for the service come to their end', {
        event: 'credentials-expire',
        what,
        daysLeft: left,
        expiresAt: new Date(atMs).toISOString(),
        remedy: endRemedies[what],
      })
    },
  }
}
