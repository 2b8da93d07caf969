// What is in use: one value, and the one function that says what follows from what the disk holds, a reload or
// a token. Pure.
import type { Config } from '../config/config.ts'
import type { OnDisk } from '../config/on-disk.ts'
import { invariant } from '../lib/invariant.ts'
import { isSame } from '../lib/secret.ts'

export type Loaded = Extract<OnDisk, { kind: 'loaded' }>

export interface InUse {
  /** The settings that were read last, with the pair that gave a token last. */
  readonly config: Config
  /** As the start or the last reload read it: the disk is compared with it. */
  readonly read: Config
  /** Another pair, which comes into use by giving a token; null: there is none. */
  readonly candidate: CandidateInUse | null
  /** The pair before the one in use: an answer of the service may still name it. Null: there was none. */
  readonly former: Config | null
  /** What the disk held when it was read last; null: it was not read since the start. */
  readonly onDisk: OnDisk | null
  /** The daemon binds its sockets itself, so that their paths mean something. */
  readonly hasOwnSockets: boolean
}
interface CandidateInUse {
  readonly config: Config
  /** The files that it came from, as an object that is another one once one of them changes; null: not seen. */
  readonly found: Loaded | null
}

export type InUseEvent =
  /** The disk was read. `isSettled`: it has been the same for a moment. */
  | { readonly type: 'disk-read'; readonly onDisk: OnDisk; readonly isSettled: boolean }
  /** A person wants this configuration in use. */
  | { readonly type: 'reload'; readonly loaded: Config }
  /** The candidate has given a token. */
  | { readonly type: 'answered' }

export function initialInUse(config: Config, { hasOwnSockets }: { hasOwnSockets: boolean }): InUse {
  return { config, read: config, candidate: null, former: null, onDisk: null, hasOwnSockets }
}

export function nextInUse(state: InUse, event: InUseEvent): InUse {
  const next = stateAfter(state, event)
  const isByToken = event.type === 'answered' || !hasSameService(next.config, state.config)
  invariant(isByToken || hasSamePair(next.config, state.config), 'a-pair-comes-into-use-by-a-token', {
    event: event.type,
  })
  return next
}

function stateAfter(state: InUse, event: InUseEvent): InUse {
  if (event.type === 'disk-read') return afterDiskRead({ ...state, onDisk: event.onDisk }, event)
  if (event.type === 'reload') return afterReload(state, event.loaded)
  return afterAnswer(state)
}

/**
 * Files that were changed hold a candidate, or none any more: no pair is tried while the configuration on disk
 * is another one than was read, or while a file is missing, empty or unfit.
 */
function afterDiskRead(state: InUse, { onDisk, isSettled }: { onDisk: OnDisk; isSettled: boolean }): InUse {
  const { candidate } = state
  if (onDisk.kind === 'stalled') return state
  if (onDisk.kind === 'faulty' || !hasOtherPair(state, onDisk)) return { ...state, candidate: null }
  const { config } = onDisk
  if (candidate?.found === onDisk) return state
  // A reload made it the candidate without knowing what the disk held: it is the same.
  if (candidate?.found === null && hasSamePair(candidate.config, config))
    return { ...state, candidate: { ...candidate, found: onDisk } }
  return isSettled ? { ...state, candidate: { config, found: onDisk } } : state
}

/** Settings count at once; another pair for the same service is a candidate. The disk was read just before. */
function afterReload(state: InUse, loaded: Config): InUse {
  const { config: former } = state
  const read = withoutRestart(loaded, state)
  if (hasSamePair(read, former)) return { ...state, config: read, read, candidate: null }
  if (!hasSameService(read, former)) return { ...state, config: read, read, candidate: null, former }
  const { onDisk } = state
  // Where the pair lies in other files than before, these are first watched from now on.
  const isWatched = isSame(read.inputs, state.read.inputs)
  const isFound = isWatched && onDisk?.kind === 'loaded' && hasSamePair(onDisk.config, read)
  const found = isFound ? onDisk : null
  return { ...state, config: { ...read, ...pairOf(former) }, read, candidate: { config: read, found } }
}

function afterAnswer(state: InUse): InUse {
  const { config: former, candidate } = state
  if (candidate === null) return state
  return { ...state, config: { ...former, ...pairOf(candidate.config) }, candidate: null, former }
}

// ---- the pair: key, secret, their end, the client certificate with its key, the secrets of `service`

function pairOf({ credentials, endsAtMs }: Config): Pick<Config, 'credentials' | 'endsAtMs'> {
  return { credentials, endsAtMs }
}

function hasSamePair(one: Config, other: Config): boolean {
  return isSame(one.credentials, other.credentials)
}

/** See `isSameService` in token/: a token of another service is not served. */
function hasSameService(one: Config, other: Config): boolean {
  return one.baseUrl === other.baseUrl && one.service.description === other.service.description
}

/** Authorities are not compared: an update of the host may change them, and must not hold up a rotation. */
export function hasOtherPair(state: InUse, { config }: Loaded): boolean {
  const { read, config: used } = state
  const { request, ...next } = withoutRestart(config, state)
  if (isSame(next.credentials, used.credentials)) return false
  return hasSameSettings({ ...next, request: { ...request, ca: read.request.ca } }, read)
}

/** Reports whether the disk holds another pair for the same service, whatever its settings are. */
export function isPairUntried({ config: used, candidate }: InUse, { config }: Loaded): boolean {
  return candidate === null && hasSameService(config, used) && !hasSamePair(config, used)
}

/** The files that hold the pair. */
export function filesOf({ secretFiles, file }: Config): string[] {
  const files = Object.values(secretFiles)
  return files.length === 0 ? [file] : files
}

export function hasSecretFiles({ secretFiles }: Config): boolean {
  return Object.keys(secretFiles).length > 0
}

// ---- settings

/** Reports whether the disk, with nothing that needs a restart, has the settings that were read. */
export function isCurrent(state: InUse, { config }: Loaded): boolean {
  return hasSameSettings(config, state.read)
}

/** Reports whether both are the same, apart from secrets that come from files. */
function hasSameSettings(one: Config, other: Config): boolean {
  return isSame(settingsOf(one), settingsOf(other))
}

function settingsOf({ credentials, endsAtMs, ...settings }: Config): object {
  const { apiKey, apiSecret, further } = credentials
  const secrets = { 'credentials.apiKey': apiKey, 'credentials.apiSecret': apiSecret, ...further }
  const written = Object.entries(secrets).filter(([at]) => !(at in settings.secretFiles))
  return { ...settings, warnings: null, endsAtMs: endsAtMs.pair, written: Object.fromEntries(written) }
}

/** The settings of it that differ from those in use and take effect at a restart alone. */
export function needingRestart(loaded: Config, { config: used, hasOwnSockets }: InUse): string[] {
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
export function withoutRestart(loaded: Config, { config: used, hasOwnSockets }: InUse): Config {
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
