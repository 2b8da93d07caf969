// The end of key and secret, or of the client certificate: logged once a day from 30 days before it.
import type { PairConfig } from '../config/config.ts'
import { DAY_MS } from '../lib/duration.ts'
import type { Log } from '../lib/log.ts'
import type { StatusResult } from '../protocol.ts'
import type { Keeper } from '../token/keeper.ts'
import { notesOf, type TokenState } from '../token/selectors.ts'

/** As a status has it. `credentials`: `credentials.expiresAt`. `certificate`: the client certificate. */
type End = NonNullable<StatusResult['daemon']['credentials']>

type Ends = Pick<PairConfig, 'ends'>

const NEAR_MS = 30 * DAY_MS
/** A certificate with a shorter life is renewed by a program: nobody has to be told. */
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

/** The first end of which people have to be told, however far it is; null: none. */
function announcedEnd({ ends }: Ends, wallMs: number): End | null {
  const { certificate } = ends
  const isRenewed = certificate !== null && certificate.endMs - certificate.fromMs < SHORT_LIFE_MS
  return credentialsEnd({ ends: { ...ends, certificate: isRenewed ? null : certificate } }, wallMs)
}

/** Reports whether people are told of an end now. */
export function isEndNear(ends: Ends, wallMs: number): boolean {
  const end = announcedEnd(ends, wallMs)
  return end !== null && Date.parse(end.expiresAt) - wallMs <= NEAR_MS
}

/** Logs the end, once a day, across restarts. Nobody is woken by it, and nothing is refused for it. */
export function createCredentialsEnd(options: {
  readonly config: () => Ends
  /** Its state has what was logged last, perhaps by a former process. */
  readonly keeper: Pick<Keeper, 'now' | 'remember'> & {
    state(): Pick<TokenState, 'notes'>
  }
  readonly log: Log
}) {
  const { config, keeper, log } = options
  const current = (): End | null => credentialsEnd(config(), keeper.now().wallMs)
  return {
    current,
    /** For the metric, which an alert rule follows; null also for a certificate that a program renews. */
    sample: (): End | null => announcedEnd(config(), keeper.now().wallMs),
    tick(): void {
      const { wallMs } = keeper.now()
      const end = announcedEnd(config(), wallMs)
      if (end === null || !isEndNear(config(), wallMs)) return
      const text = `${end.what} ${end.expiresAt} ${end.daysLeft}`
      if (text === notesOf(keeper.state()).loggedEnd) return
      keeper.remember({ loggedEnd: text })
      log('warning', 'The credentials for the service come to their end', {
        event: 'credentials-expire',
        ...end,
        remedy: endRemedies[end.what],
      })
    },
  }
}
