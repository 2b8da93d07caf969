// The log of the configuration: at the start, at a reload, and before the end of its credentials.
import program from '../../package.json' with { type: 'json' }
import type { Config, PairConfig } from '../config/config.ts'
import { DAY_MS } from '../lib/duration.ts'
import type { Log } from '../lib/log.ts'
import type { StatusResult } from '../protocol.ts'
import type { Keeper } from '../token/keeper.ts'

export function logStart({ service, read }: Config, log: Log): void {
  log('info', 'kyc-tokend has started', {
    event: 'started',
    version: program.version,
    configFile: read.file,
    baseUrl: service.baseUrl,
  })
  logWarnings(read, log)
}

export function logReload(read: Config['read'], log: Log): void {
  logWarnings(read, log)
  log('notice', 'The configuration was read again', {
    event: 'reloaded',
    needsRestart: read.needsRestart,
    // systemd loads its credentials at a start alone.
    credentialsOfStart: read.systemdCredentials,
  })
}

function logWarnings({ warnings }: Config['read'], log: Log): void {
  for (const warning of warnings)
    log('warning', 'The configuration has a problem', { event: 'config-warning', warning })
}

/** As a status has it. `credentials`: `credentials.expiresAt`. `certificate`: the client certificate. */
type End = NonNullable<StatusResult['daemon']['credentials']>
type Ends = Pick<PairConfig, 'ends'>

const NEAR_DAYS = 30
/** A certificate with a shorter life is renewed by a program. */
const SHORT_LIFE_MS = 90 * DAY_MS

export const endRemedies: Readonly<Record<End['what'], string>> = {
  credentials:
    'Make another pair where the service issues them, write it where the configuration reads the secrets ' +
    'from, and set `credentials.expiresAt` to its end',
  certificate:
    'Have the client certificate renewed, and write it and its key over the files of ' +
    '`request.clientCertificate`: they are tried within 30 s',
}

/** The first end; null: none is known. */
export function credentialsEnd({ ends }: Ends, wallMs: number): End | null {
  const pair = ends.credentialsMs
  const atMs = Math.min(pair ?? Infinity, ends.certificate?.endMs ?? Infinity)
  if (atMs === Infinity) return null
  return {
    what: atMs === pair ? 'credentials' : 'certificate',
    expiresAt: new Date(atMs).toISOString(),
    // Begun days count; 0: it has come.
    daysLeft: Math.max(0, Math.ceil((atMs - wallMs) / DAY_MS)),
  }
}

/** The first end that a person has to prevent, however far it is; null: none. */
export function announcedEnd({ ends }: Ends, wallMs: number): (End & { readonly isNear: boolean }) | null {
  const { certificate } = ends
  const isRenewed = certificate !== null && certificate.endMs - certificate.fromMs < SHORT_LIFE_MS
  const end = credentialsEnd({ ends: { ...ends, certificate: isRenewed ? null : certificate } }, wallMs)
  return end && { ...end, isNear: end.daysLeft <= NEAR_DAYS }
}

/** Logs that end once it is near, once a day, across restarts: the keeper remembers the last record. */
export function logCredentialsEnd(
  pair: Ends,
  { keeper, log }: { keeper: Pick<Keeper, 'now' | 'state' | 'remember'>; log: Log },
): void {
  const end = announcedEnd(pair, keeper.now().wallMs)
  if (end === null || !end.isNear) return
  const { what, expiresAt, daysLeft } = end
  const text = `${what} ${expiresAt} ${daysLeft}`
  if (text === keeper.state().notes['loggedEnd']) return
  keeper.remember({ loggedEnd: text })
  const remedy = endRemedies[what]
  const fields = { event: 'credentials-expire', what, expiresAt, daysLeft, remedy }
  log('warning', 'The credentials for the service come to their end', fields)
}
