// The decisions of exec --on-change, without I/O: when the command is signalled, stopped, killed and started again, and when exec ends.

export interface SupervisionSettings {
  /** `restart`, or the signal that the command gets instead. */
  readonly onChange: 'restart' | NodeJS.Signals
  readonly splayMs: number
  readonly stopTimeoutMs: number
  /** Shortest time from a start or a signal to the next one. */
  readonly minBetweenMs: number
}
export interface Supervision {
  /** `due`: the token has changed, and the command is signalled or stopped at `wakeAtMs`. `ending`: for good. */
  readonly phase: 'running' | 'due' | 'stopping' | 'ending' | 'ended'
  /** Fingerprint of the token with which the command was started or signalled. */
  readonly known: string
  readonly newest: string
  /** Time of the last start or signal. */
  readonly actedAtMs: number
  /** Time at which `wake` is to be sent. */
  readonly wakeAtMs?: number
}
export type SupervisionEvent =
  { readonly type: 'token'; readonly fingerprint: string } | { readonly type: 'wake' | 'exited' | 'end' }
export type SupervisionAction = 'signal' | 'stop' | 'kill' | 'start' | 'exit'
interface SupervisionStep {
  readonly state: Supervision
  readonly action?: SupervisionAction
}
interface Context {
  readonly settings: SupervisionSettings
  readonly nowMs: number
  /** A random number in [0, 1). */
  readonly randomUnit: number
}

/** The command was started with the token of this fingerprint. */
export function startedWith(fingerprint: string, nowMs: number): Supervision {
  return { phase: 'running', known: fingerprint, newest: fingerprint, actedAtMs: nowMs }
}

export function nextSupervision(
  state: Supervision,
  event: SupervisionEvent,
  context: Context,
): SupervisionStep {
  if (state.phase === 'ended') return { state }
  if (event.type === 'token') return { state: afterToken(state, event.fingerprint, context) }
  if (event.type === 'wake') return afterWake(state, context)
  if (event.type === 'end') return { state: ending(state) }
  return state.phase === 'stopping'
    ? { state: startedWith(state.newest, context.nowMs), action: 'start' }
    : { state: { ...withoutWake(state), phase: 'ended' }, action: 'exit' }
}

function afterToken(
  state: Supervision,
  newest: string,
  { settings, nowMs, randomUnit }: Context,
): Supervision {
  if (state.phase !== 'running' && state.phase !== 'due') return { ...state, newest }
  // The former token is back before anything was done.
  if (newest === state.known) return { ...withoutWake(state), phase: 'running', newest }
  if (state.phase === 'due') return { ...state, newest }
  const wakeAtMs = Math.max(nowMs + settings.splayMs * randomUnit, state.actedAtMs + settings.minBetweenMs)
  return { ...state, phase: 'due', newest, wakeAtMs }
}

function afterWake(state: Supervision, { settings, nowMs }: Context): SupervisionStep {
  // The stop timeout is over, also of a stop that became one for good.
  if (state.phase !== 'due') return { state: withoutWake(state), action: 'kill' }
  return settings.onChange === 'restart'
    ? { state: { ...state, phase: 'stopping', wakeAtMs: nowMs + settings.stopTimeoutMs }, action: 'stop' }
    : { state: startedWith(state.newest, nowMs), action: 'signal' }
}

/** A stop that has begun keeps its timeout. */
function ending(state: Supervision): Supervision {
  return { ...(state.phase === 'stopping' ? state : withoutWake(state)), phase: 'ending' }
}

function withoutWake({ phase, known, newest, actedAtMs }: Supervision): Supervision {
  return { phase, known, newest, actedAtMs }
}
