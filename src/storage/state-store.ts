// The state that is saved for a restart: the token, for this boot only, and the facts about attempts, for longer. So a restart
// does not ask the service more often than it must.
import { readFileSync } from 'node:fs'
import { join } from 'node:path'
import * as v from 'valibot'
import { withTimeout, type Clock, type Instant } from '../lib/clock.ts'
import { hmacSha256, randomHex } from '../lib/crypto.ts'
import { inDirectory } from '../lib/in-directory.ts'
import { withSystemFallback } from '../lib/error.ts'
import { fs } from '../lib/fs.ts'
import { parseJson } from '../lib/input.ts'
import type { Log } from '../lib/log.ts'
import { createOwnFile } from '../lib/managed-file.ts'
import type { Credentials } from '../lib/secret.ts'
import { expirySources, permanentReasons, transientReasons } from '../token/outcome.ts'
import {
  initialState,
  tokenlessFrom,
  usableUntilMs,
  type ServiceSettings,
  type Failure,
  type SavedFleet,
  type TokenState,
} from '../token/state.ts'
import { fingerprintOf, isSameService, type Token } from '../token/token.ts'

export type StateStore = Awaited<ReturnType<typeof createStateStore>>

const KEY_BYTES = 32
const KEY_TEXT = /^[0-9a-f]{64}\n$/
/** The longest time that the start or the end of the daemon waits for a disk. */
const MAX_WAIT_MS = 2_000
/** `f_type` of tmpfs and ramfs, from statfs(2). */
const IN_MEMORY_TYPES = new Set([0x01021994, 0x858458f6])
/** The longest wait there is: `Retry-After` of an hour and a fifth of it. A clock that jumped cannot make a longer one. */
const MAX_RETRY_WAIT_MS = 72 * 60_000
/** Boot clocks of two processes disagree by less: if /proc/uptime is hidden (`ProcSubset=pid`) Node reads whole seconds. */
const CLOCK_GRAIN_MS = 1_000

/**
 * Opens the store in these directories, and makes its key if there is none. Only for a daemon that has the instance lock:
 * a second one must not touch the files of the first.
 */
export async function createStateStore({
  runtimeDirectory,
  stateDirectory,
  clock,
  log,
  bootIdFile = '/proc/sys/kernel/random/boot_id',
}: {
  runtimeDirectory: string
  stateDirectory: string
  clock: Clock
  log: Log
  bootIdFile?: string
}) {
  const tokenFile = createOwnFile(join(runtimeDirectory, 'kept.json'), { log, isRevocable: true })
  const stateFile = createOwnFile(join(stateDirectory, 'memory.json'), { log })
  const keyFile = createOwnFile(join(stateDirectory, 'key'), { log })
  const files = [keyFile, tokenFile, stateFile]
  const key = await openKey()
  /** Null if it cannot be read: `ProcSubset=pid` hides it. The file is the kernel's own, which never blocks. */
  const bootId = withSystemFallback(null, () => readFileSync(bootIdFile, 'utf8').trim())
  /** Set by `load`. */
  let fleet: SavedFleet

  async function withinLimit(work: Promise<unknown>): Promise<void> {
    await withTimeout(MAX_WAIT_MS, work, clock)
  }

  /** The key of the fingerprints, made once. Without it saved state cannot be attributed, and is ignored. */
  async function openKey(): Promise<string> {
    const known = await keyFile.read((text) => (KEY_TEXT.test(text) ? text.trim() : undefined))
    const own = known ?? randomHex(KEY_BYTES)
    await withinLimit(keyFile.write(own, (text) => `${text}\n`))
    return own
  }

  /** Reports whether the file was written in this boot. If no boot id can be read: whether the directory is in memory. */
  async function isThisBoot(written: Written): Promise<boolean> {
    if (written.bootId === null || bootId === null) return isInMemory(runtimeDirectory)
    return written.bootId === bootId
  }

  async function save(state: TokenState, { isOrderly = false } = {}): Promise<void> {
    const at: Written = { at: clock.now(), bootId }
    // The token first: if the process ends in between, the next start has the newer token.
    await tokenFile.write(savedTokenOf(state, fleet), (value) => formatSavedToken(value, at))
    await stateFile.write(savedStateOf(state, { isOrderly, ...fleet }), (value) =>
      formatSavedState(value, at),
    )
  }

  return {
    /** See TokenState. */
    credentialsIdOf(
      baseUrl: string,
      { apiKey, apiSecret }: Credentials,
      description: string | null = null,
    ): string {
      const id = hmacSha256(key, JSON.stringify([baseUrl, apiKey.reveal(), apiSecret.reveal()]))
      return description === null ? id : `${hmacSha256(key, description)}:${id}`
    },
    /**
     * The state to begin with. Once it returns, the files say that the daemon runs: an end without `close` is a crash.
     * Never fails: a file that cannot be used is logged and ignored.
     */
    async load(settings: ServiceSettings): Promise<TokenState> {
      await withinLimit(Promise.all(files.map(async (file) => file.begin())))
      const [kept, remembered] = await Promise.all([
        tokenFile.read(parseSavedToken, (file) => file.kept),
        stateFile.read(parseSavedState, (file) => file.remembered),
      ])
      const restored = restoredState(settings, {
        now: clock.now(),
        token: kept !== null && (await isThisBoot(kept.written)) ? kept.kept : null,
        saved: remembered && {
          ...remembered,
          isThisBoot: remembered.written.bootId !== null && remembered.written.bootId === bootId,
        },
      })
      fleet = restored.fleet
      await withinLimit(save(restored.state))
      return restored.state
    },
    save: async (state: TokenState): Promise<void> => save(state),
    /** The fence and the size of the fleet, as they were loaded or last set. */
    fleet: (): SavedFleet => fleet,
    /** Saved with the next state. */
    setFleet(next: SavedFleet): void {
      fleet = next
    },
    /** Why the state cannot be saved: one sentence with the remedy; null if it can. */
    problem: (): string | null => stateFile.error() ?? keyFile.error() ?? tokenFile.error(),
    /** Writes again what could not be written, or what was removed from outside. Never fails. */
    async tick(): Promise<void> {
      await Promise.all(files.map(async (file) => file.tick()))
    },
    /** An orderly stop: the next start may ask again what was refused. Never fails, and does not wait for a disk that hangs. */
    close: async (state: TokenState): Promise<void> => withinLimit(save(state, { isOrderly: true })),
  }
}

/** Reports whether the directory is on a file system that lives in memory, and so does not outlive the boot. */
async function isInMemory(directory: string): Promise<boolean> {
  return inDirectory(directory, async () => fs.statfs(directory)).then(
    ({ type }) => IN_MEMORY_TYPES.has(type),
    () => false,
  )
}

// ---- the files' content: any bytes give what was written, or nothing ------------------------------------------------

/** Raised when the shape changes. A file of another version is ignored, which costs one request. */
const VERSION = 2

/** Far beyond any uptime and any date, and still exact in milliseconds. */
const MAX_MS = 1e14
const ms = v.pipe(v.number(), v.minValue(-MAX_MS), v.maxValue(MAX_MS))
const count = v.pipe(v.number(), v.safeInteger(), v.minValue(0))
const instant = v.object({ bootMs: ms, wallMs: ms })

/** The moment of writing, and the boot; null: the boot's id could not be read. */
const writtenShape = v.object({ at: instant, bootId: v.nullable(v.string()) })

// The names in these shapes are those of the files, and do not follow the names in the code.

/** `askedBy`: the host of the fleet that made the request; null: this one. */
const trouble = { detail: v.string(), since: instant, askedBy: v.nullable(v.string()) }

/** A text of `share/`, which it wrote and reads again. */
const sharedText = v.exactOptional(v.string())

/** The facts about the attempts, in the state directory: neither token nor credentials. */
const savedStateShape = v.object({
  /** Keyed fingerprint of the service and the credentials that all this is about. */
  subject: v.string(),
  generation: count,
  isOrderly: v.boolean(),
  failure: v.nullable(
    v.object({
      reason: v.picklist(transientReasons),
      status: v.nullable(count),
      attempts: count,
      retryAtMs: ms,
      ...trouble,
    }),
  ),
  refusal: v.nullable(
    v.object({ reason: v.picklist(permanentReasons), status: count, ...trouble, known: sharedText }),
  ),
  alert: v.nullable(v.object({ reason: v.picklist([...permanentReasons, 'rejected']), ...trouble })),
  notBeforeMs: v.nullable(ms),
  /** `notBeforeMs` of other credentials, by their keyed fingerprint. */
  otherBounds: v.record(v.string(), ms),
  /** The moment, past or to come, from which on there is no usable token; null: not known. */
  tokenlessFrom: v.nullable(instant),
  lastClientRequestAtMs: v.nullable(ms),
  learned: v.nullable(v.object({ maxAgeMs: ms, atMs: ms })),
  lastRequestAt: v.nullable(instant),
  lastSuccessAt: v.nullable(instant),
  /** The newest fence of the shared store that this host knows; 0: none. */
  fence: count,
  /** The size of the fleet when it was last counted; 0: never. */
  hosts: count,
})
/** The token, in the runtime directory. Its instants hold for one boot only. */
const savedTokenShape = v.object({
  subject: v.string(),
  fence: count,
  token: v.pipe(
    v.object({
      accessToken: v.string(),
      fingerprint: v.string(),
      generation: count,
      baseUrl: v.string(),
      received: instant,
      lifeMs: v.pipe(ms, v.gtValue(0)),
      expiresAtMs: ms,
      expirySource: v.picklist(expirySources),
      refreshAtMs: ms,
      known: sharedText,
    }),
    // The fingerprint vouches for the token: not one character of it was lost.
    v.check(({ accessToken, fingerprint }) => fingerprint === fingerprintOf(accessToken)),
  ),
})

export type Written = Readonly<v.InferOutput<typeof writtenShape>>
export type SavedState = Readonly<v.InferOutput<typeof savedStateShape>>
export type SavedToken = Readonly<v.InferOutput<typeof savedTokenShape>>

const stateFileShape = v.object({
  version: v.literal(VERSION),
  written: writtenShape,
  remembered: savedStateShape,
})
const tokenFileShape = v.object({ version: v.literal(VERSION), written: writtenShape, kept: savedTokenShape })

export function formatSavedState(remembered: SavedState, at: Written): string {
  return `${JSON.stringify({ version: VERSION, written: at, remembered })}\n`
}
export function formatSavedToken(kept: SavedToken, at: Written): string {
  return `${JSON.stringify({ version: VERSION, written: at, kept })}\n`
}

/** Undefined if it is not the output of formatSavedState. */
export const parseSavedState = (text: string) => parsed(text, stateFileShape)
/** Undefined if it is not the output of formatSavedToken. */
export const parseSavedToken = (text: string) => parsed(text, tokenFileShape)

function parsed<T>(text: string, shape: v.GenericSchema<unknown, T>): T | undefined {
  const { success, output } = v.safeParse(shape, parseJson(text))
  return success ? output : undefined
}

// ---- the facts that are saved, and the state out of them: pure ------------------------------------------------------

export function savedTokenOf({ token }: TokenState, { fence }: SavedFleet): SavedToken | null {
  if (token === null) return null
  const { credentialsId: subject, ...rest } = token
  return { subject, fence, token: rest }
}

export function savedStateOf(
  state: TokenState,
  { isOrderly, fence, hosts }: SavedFleet & { isOrderly: boolean },
): SavedState {
  const { credentialsId: subject, learnedMaxAge: learned, generation, failure, refusal, alert } = state
  const { lastClientRequestAtMs, lastRequestAt, lastSuccessAt } = state
  const { [subject]: notBeforeMs = null, ...otherBounds } = state.notBefore
  const attempts = { subject, generation, isOrderly, failure, refusal, alert, notBeforeMs, otherBounds }
  const instants = { tokenlessFrom: tokenlessFrom(state), lastClientRequestAtMs, learned }
  return { ...attempts, ...instants, lastRequestAt, lastSuccessAt, fence, hosts }
}

/** The state to begin with. `token` is of this boot; `saved` perhaps of another one. */
export function restoredState(
  settings: ServiceSettings,
  {
    now,
    token: kept,
    saved,
  }: {
    now: Instant
    token: SavedToken | null
    saved: { readonly remembered: SavedState; readonly written: Written; readonly isThisBoot: boolean } | null
  },
): { state: TokenState; fleet: SavedFleet } {
  const known = saved && onClock(saved.remembered, { shiftMs: clockShiftMs(saved, now), now })
  const generation = Math.max(kept?.token.generation ?? 0, known?.generation ?? 0)
  // One that was replaced is not served again, whatever the disk kept of it.
  const token = kept?.token.generation === generation ? goodTokenOf(kept, now) : null
  const state: TokenState = {
    ...initialState(settings, now),
    token: token !== null && isSameService(token, settings) ? token : null,
    generation,
    ...(known && { ...factsOf(known, settings.credentialsId, now), tokenlessSince: lossOf(known, now) }),
  }
  // Fences of other credentials order other records.
  const fences = [kept, known].map((from) => (from?.subject === settings.credentialsId ? from.fence : 0))
  return { state, fleet: { fence: Math.max(...fences), hosts: known?.hosts ?? 0 } }
}

/** Null if the token may no longer be handed out, or if its instants are impossible. */
function goodTokenOf({ subject, token }: SavedToken, now: Instant): Token | null {
  const latestMs = now.bootMs + CLOCK_GRAIN_MS
  const isPossible = token.received.bootMs <= latestMs && token.expiresAtMs <= latestMs + token.lifeMs
  return isPossible && now.bootMs < usableUntilMs(token) ? { ...token, credentialsId: subject } : null
}

/** Since when there is no token, if the saved one cannot be used: as was saved, or from now on. */
function lossOf({ tokenlessFrom: lost }: SavedState, now: Instant): Instant {
  return lost !== null && lost.bootMs < now.bootMs ? lost : now
}

/** The facts that count with these credentials. */
function factsOf(known: SavedState, credentialsId: string, now: Instant): Partial<TokenState> {
  const { subject, notBeforeMs, otherBounds, isOrderly, refusal } = known
  const { lastClientRequestAtMs, lastRequestAt, lastSuccessAt } = known
  const notBefore = { ...otherBounds, ...(notBeforeMs !== null && { [subject]: notBeforeMs }) }
  const always = { notBefore, lastClientRequestAtMs, lastRequestAt, lastSuccessAt }
  if (subject !== credentialsId) return always
  return {
    ...always,
    alert: known.alert,
    refusal,
    failure: isOrderly ? failureInForce(known, now) : known.failure,
    learnedMaxAge: known.learned,
    forcedCause: refusal !== null && isOrderly ? 'start' : null,
  }
}

/** The part of a failure that outlives an orderly stop: only a wait that the service itself asked for. */
function failureInForce({ failure, notBeforeMs }: SavedState, now: Instant): Failure | null {
  if (failure === null || notBeforeMs === null || notBeforeMs <= now.bootMs) return null
  return { ...failure, attempts: 1, retryAtMs: notBeforeMs }
}

/** The time to add to an instant of the former boot clock: 0 in the same boot, else what the wall clocks say. */
function clockShiftMs(
  { written: { at }, isThisBoot }: { written: Written; isThisBoot: boolean },
  now: Instant,
): number {
  if (isThisBoot && at.bootMs <= now.bootMs) return 0
  return now.bootMs - now.wallMs + (at.wallMs - at.bootMs)
}

/** The saved instants on the boot clock, by name, and whether each is past or is waited for. */
const INSTANTS: Readonly<Record<string, 'past' | 'ahead'>> = {
  bootMs: 'past',
  atMs: 'past',
  lastClientRequestAtMs: 'past',
  retryAtMs: 'ahead',
  notBeforeMs: 'ahead',
  otherBounds: 'ahead',
}

/** The same state with its instants on the present boot clock; no past one is in the future, and no wait is too long. */
function onClock(saved: SavedState, { shiftMs, now }: { shiftMs: number; now: Instant }): SavedState {
  const latestMs = { past: now.bootMs, ahead: now.bootMs + MAX_RETRY_WAIT_MS }
  function shifted(value: unknown, name: string): unknown {
    const kind = INSTANTS[name]
    if (typeof value === 'number') return kind ? Math.min(value + shiftMs, latestMs[kind]) : value
    if (typeof value !== 'object' || value === null) return value
    const entries = Object.entries(value).map(([own, item]) => [own, shifted(item, kind ? name : own)])
    return Object.fromEntries(entries)
  }
  const { tokenlessFrom: from } = saved
  return {
    ...(shifted(saved, '') as SavedState),
    // This instant may be past or to come.
    tokenlessFrom: from && { ...from, bootMs: from.bootMs + shiftMs },
  }
}
