// Parts of a configuration that `config/next` makes itself: the pair apart, and what only a restart changes.
import type { Config } from '../config/config.ts'
import { isSame } from '../lib/secret.ts'

/** These settings with the pair of another configuration. */
export function withPairOf(settings: Config, { credentials, endsAtMs, service: of }: Config): Config {
  const { send, names, parameters, headers, token, assertion, description } = of
  const pair = { send, names, parameters, headers, token, assertion, description }
  return { ...settings, credentials, endsAtMs, service: { ...settings.service, ...pair } }
}

/** Reports whether both are the same, apart from secrets that come from files, and from authorities. */
export function hasSameSettings(one: Config, other: Config): boolean {
  return isSame(settingsOf(one), settingsOf(other))
}

function settingsOf({ credentials, endsAtMs, request, ...settings }: Config): object {
  const { apiKey, apiSecret, further } = credentials
  const secrets = { 'credentials.apiKey': apiKey, 'credentials.apiSecret': apiSecret, ...further }
  const written = Object.entries(secrets).filter(([at]) => !(at in settings.secretFiles))
  return {
    ...settings,
    request: { ...request, ca: null },
    warnings: null,
    endsAtMs: endsAtMs.pair,
    written: Object.fromEntries(written),
  }
}

/** The settings of it that differ from those in use and take effect at a restart alone. */
export function needingRestart(loaded: Config, used: Config, hasOwnSockets: boolean): string[] {
  const isMoved = (name: 'ipc' | 'http'): boolean =>
    hasOwnSockets && loaded[name] !== null && used[name] !== null && loaded[name].path !== used[name].path
  return [
    ...(loaded.wantedRuntimeDirectory === used.runtimeDirectory ? [] : ['runtimeDirectory']),
    ...(loaded.stateDirectory === used.stateDirectory ? [] : ['stateDirectory']),
    ...(isMoved('ipc') ? ['ipc.path'] : []),
    ...(isMoved('http') ? ['http.path'] : []),
    ...((loaded.http === null) === (used.http === null) ? [] : ['http']),
  ]
}

/** The configuration with those settings as they are in use. */
export function withoutRestart(loaded: Config, used: Config, hasOwnSockets: boolean): Config {
  const { runtimeDirectory, stateDirectory, ipc, http } = used
  return {
    ...loaded,
    runtimeDirectory,
    stateDirectory,
    ipc: hasOwnSockets ? { ...loaded.ipc, path: ipc.path } : loaded.ipc,
    http:
      loaded.http === null || http === null
        ? http
        : { ...loaded.http, path: hasOwnSockets ? http.path : loaded.http.path },
  }
}
