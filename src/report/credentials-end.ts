// The end of key and secret, or of the client certificate: logged 30, 7 and 1 days before it comes, and when
// it has come.
import type { Config } from '../config/config.ts'
import { DAY_MS } from '../lib/duration.ts'
import type { Keeper } from '../token/keeper.ts'
import type { TokenState } from '../token/state.ts'
import type { Log } from '../lib/log.ts'
import type { StatusResult } from '../protocol.ts'

/** As a status has it. `pair`: `credentials.expiresAt`. `certificate`: the client certificate. */
type End = NonNullable<StatusResult['daemon']['credentials']>

type Ends = Pick<Config, 'endsAtMs'>

/** The times before the end at which it is logged; 0: it has come. */
const STAGES_MS = [30 * DAY_MS, 7 * DAY_MS, DAY_MS, 0]
/** A certificate with a shorter life is renewed by a program, and these parts of its life count instead. */
const SHORT_LIFE_MS = 90 * DAY_MS
const STAGES_OF_SHORT_LIFE = [1 / 3, 1 / 10, 1 / 30, 0]

export const endRemedies: Readonly<Record<End['what'], string>> = {
  pair:
    'Make another pair where the service issues them, write it where the configuration reads the secrets ' +
    'from, and set `credentials.expiresAt` to its end',
  certificate:
    'Have the client certificate renewed, and write it and its key over the files of ' +
    '`request.clientCertificate`: they are tried within 30 s',
}

/** The first end by which the service stops to know the account; null: none is known. */
export function credentialsEnd({ endsAtMs }: Ends, wallMs: number): End | null {
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

/** The last stage on the way to this end that has been reached, in ms before the end; null: none yet. */
export function stageReached(end: End, { endsAtMs }: Ends, wallMs: number): number | null {
  const { certificate, certificateFrom } = endsAtMs
  const lifeMs = end.what === 'certificate' ? Number(certificate) - Number(certificateFrom) : Infinity
  const stages = lifeMs < SHORT_LIFE_MS ? STAGES_OF_SHORT_LIFE.map((part) => part * lifeMs) : STAGES_MS
  const leftMs = Date.parse(end.expiresAt) - wallMs
  return stages.findLast((stageMs) => leftMs <= stageMs) ?? null
}

/**
 * Logs the end, once for each stage, across restarts. Nobody is woken by it, and nothing is refused for it.
 */
export function createCredentialsEnd(options: {
  readonly config: () => Ends
  /** Its state has what was logged last, perhaps by a former process. */
  readonly keeper: Pick<Keeper, 'now' | 'setLoggedEnd'> & {
    state(): Pick<TokenState, 'loggedEnd'>
  }
  readonly log: Log
}) {
  const { config, keeper, log } = options
  const wallMs = (): number => keeper.now().wallMs
  const current = (): End | null => credentialsEnd(config(), wallMs())
  return {
    current,
    /** For metrics: the end, and whether it has been logged because it is near. */
    sample(): { expiresAt: string; isNear: boolean } | null {
      const end = current()
      return end && { expiresAt: end.expiresAt, isNear: stageReached(end, config(), wallMs()) !== null }
    },
    tick(): void {
      const end = current()
      const stageMs = end && stageReached(end, config(), wallMs())
      if (end === null || stageMs === null) return
      const text = `${end.what} ${end.expiresAt} ${Math.round(stageMs / 1_000)}`
      if (text === keeper.state().loggedEnd) return
      void keeper.setLoggedEnd(text)
      log('warning', 'The credentials for the service come to their end', {
        event: 'credentials-expire',
        ...end,
        remedy: endRemedies[end.what],
      })
    },
  }
}
