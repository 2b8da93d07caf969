// A host of the model: the program's own keeper, trials, saved state and sharing in a process, and its disk.
import type { Config } from '../../src/config/config.ts'
import type { OnDisk } from '../../src/config/on-disk.ts'
import { sha256 } from '../../src/lib/crypto.ts'
import type { Log } from '../../src/lib/log.ts'
import { createRunning } from '../../src/running/running.ts'
import { restoredState } from '../../src/storage/restored-state.ts'
import { formatSaved, parseSavedState, parseSavedToken, savedStateOf } from '../../src/storage/saved-state.ts'
import type { StateStore } from '../../src/storage/state-store.ts'
import type { ServiceSettings, TokenState } from '../../src/token/state.ts'
import { createRequests } from '../rules/requests.ts'
import { createTokenless } from '../rules/tokens.ts'
import { settle } from './clock.ts'
import { baseUrlOf, createConfigOf, nameOf } from './config.ts'
import { effect } from './process.ts'
import { fetchTokenOf } from './service.ts'
import { PREFIX, type Host, type Life, type State } from './state.ts'
import { openStore } from './store.ts'

const configOf = createConfigOf()

/** The configuration that lies on the host's disk. */
export function configOnDisk({ waits, hasNames, share }: State, host: Host): Config {
  const name = hasNames ? `host-${host.index}` : null
  return configOf(host, { isWaiting: waits.includes(host.index), name, share })
}

/** A host that has never run. */
export function createHost({ isShared, hasOwnProof, broke, nowMs }: State, index: number): Host {
  return {
    index,
    disk: { token: null, state: null },
    boots: 0,
    bootedAtMs: 0,
    sleptMs: 0,
    wallAheadMs: 0,
    hangsMs: 0,
    hungSinceMs: null,
    prefix: isShared ? PREFIX : null,
    policy: 'usual',
    operators: [],
    owed: [],
    isWallSet: false,
    isReplanned: false,
    barred: null,
    files: hasOwnProof ? 'a+own' : 'a',
    written: 0,
    armed: null,
    isLate: false,
    mayAskAlone: false,
    handed: {},
    refusedAt: new Map<string, number>(),
    events: [],
    rules: createRequests(broke, { grainMs: 1 }),
    tokenless: createTokenless(nowMs()),
  } as unknown as Host
}

/** Starts a process of the daemon on the host. */
export async function start(state: State, host: Host): Promise<void> {
  const life = {
    host,
    isDead: false,
    inbox: null,
    stop: new AbortController(),
    get config() {
      return (this as unknown as Life).parts?.config() ?? configOnDisk(state, host)
    },
  } as unknown as Life
  host.life = life
  host.mayAskAlone = false
  const clock = state.clock.of(life, host)
  Object.assign(life, { clock })
  const store = stateStoreOf(state, () => life)
  const log: Log = (_level, _sentence, fields) => void host.events.push(fields)
  let found: { written: number; onDisk: OnDisk } | null = null
  const readDisk = (): Promise<OnDisk> => {
    const { written } = host
    if (found?.written !== written)
      found = { written, onDisk: { kind: 'loaded', config: { ...configOnDisk(state, host) } } }
    return Promise.resolve(found.onDisk)
  }
  const { signal } = life.stop
  host.rules.started(state.nowMs(), { hasGoodToken: false })
  const parts = await createRunning(configOnDisk(state, host), {
    env: {},
    clock,
    random: state.random,
    log,
    store,
    stop: signal,
    hasOwnSockets: false,
    load: () => Promise.resolve(configOnDisk(state, host)),
    readDisk,
    openStore: ({ prefix }, { accountKey }) =>
      Promise.resolve(openStore(state, () => life, `${prefix}:${accountKey}`)),
    createFetchToken: ({ pair, service }) => {
      const account = nameOf({ credentials: pair, baseUrl: baseUrlOf(service.tokenUrl) })
      return fetchTokenOf(state, () => life, account)
    },
  })
  Object.assign(life, { parts, store })
  const running = Promise.all([parts.keeper.run(signal), parts.sharing.run(signal), parts.run(signal)])
  running.catch((error: Error) => state.check(life.isDead, `the daemon ends: ${error.message}`))
  await settle(2)
}

/** The state store with its pure half; each file is one effect, and a kill comes before, between or after them. */
function stateStoreOf(state: State, life: () => Life): StateStore {
  const { host } = life()
  let saving = Promise.resolve()
  /** The two files, as texts. */
  function written(saved: TokenState, isOrderly: boolean): Record<'token' | 'state', string | null> {
    const boot = String(host.boots)
    const marks = state.hasBootId ? { bootId: boot, bootMark: null } : { bootId: null, bootMark: boot }
    const at = { at: life().clock.now(), ...marks }
    const { token } = saved
    return {
      token: token && formatSaved(token, at),
      state: formatSaved(savedStateOf(saved, { isOrderly }), at),
    }
  }
  async function writeFiles(files: Host['disk']): Promise<void> {
    const { hangsMs } = host
    host.hangsMs = 0
    if (hangsMs > 0) {
      host.hungSinceMs = state.nowMs()
      await life().clock.sleep(hangsMs, new AbortController().signal)
      host.hungSinceMs = null
    }
    await effect(state, life())
    host.disk = { ...host.disk, token: files.token }
    await effect(state, life())
    host.disk = { ...host.disk, state: files.state }
    await effect(state, life())
  }
  async function save(saved: TokenState, isOrderly: boolean): Promise<void> {
    const files = written(saved, isOrderly)
    saving = saving.then(() => writeFiles(files))
    await saving
  }
  return {
    hostId: `${host.index}`.padStart(16, '0'),
    credentialsIdOf: (baseUrl: string, credentials: Config['credentials']) =>
      sha256(nameOf({ credentials, baseUrl })),
    load(settings: ServiceSettings) {
      const loaded = restored(state, host, { settings, now: life().clock.now() })
      host.disk = written(loaded, false)
      const { token, objection } = loaded
      const isGood =
        token?.credentialsId === settings.credentialsId && token.expiresAtMs > life().clock.now().bootMs
      host.rules.started(state.nowMs(), { hasGoodToken: isGood && objection === null })
      return Promise.resolve(loaded)
    },
    save: (saved: TokenState) => save(saved, false),
    close: (saved: TokenState) => save(saved, true),
  } as unknown as StateStore
}

/** What a process that starts now knows of what is on the disk. */
export function restored(
  { check, hasBootId }: State,
  host: Host,
  { settings, now }: { settings: ServiceSettings; now: { bootMs: number; wallMs: number } },
): TokenState {
  const { token, state } = host.disk
  const kept = token === null ? undefined : parseSavedToken(token)
  const remembered = state === null ? undefined : parseSavedState(state)
  check((token === null) === (kept === undefined), 'a saved token that cannot be read')
  check((state === null) === (remembered === undefined), 'a saved state that cannot be read')
  const isThisBoot = ({ bootId, bootMark }: { bootId: string | null; bootMark?: string | null }): boolean =>
    (hasBootId ? bootId : bootMark) === String(host.boots)
  return restoredState(settings, {
    now,
    awakeMs: now.bootMs - host.sleptMs,
    kept: kept && isThisBoot(kept.written) ? kept.facts : null,
    saved: remembered ? { ...remembered, isThisBoot: isThisBoot(remembered.written) } : null,
  })
}
