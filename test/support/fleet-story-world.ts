// The world of a random story of a fleet: hosts with the real keeper, saved state and sharing, a store that fails, and a model of what they must not do.
import { cpSync, mkdirSync, mkdtempSync, rmSync } from 'node:fs'
import { join } from 'node:path'
import type { Config, ShareConfig } from '../../src/config/config.ts'
import { standardService } from '../../src/config/service.ts'
import { createConfiguredKeeper } from '../../src/configured-keeper.ts'
import type { Keeper } from '../../src/token/keeper.ts'
import type { Clock } from '../../src/lib/clock.ts'
import { Secret } from '../../src/lib/secret.ts'
import { StoreError, type Store } from '../../src/share/store.ts'
import { createStateStore, type StateStore } from '../../src/storage/state-store.ts'
import type { Cause, FetchToken, ServiceOutcome } from '../../src/token/outcome.ts'
import { dueAtMs, phaseOf, usableToken, usableUntilMs } from '../../src/token/state.ts'
import { createFakeClock } from './fake-clock.ts'
import { jwtOf } from './jwt.ts'
import { createMemoryServer, type MemoryServer } from './memory-store.ts'

await import('p-retry')
await import('../../src/share/fleet.ts')

/** Answers of the service that give no token. */
const failures = {
  outage: { kind: 'transient', reason: 'server-error', detail: 'outage', status: 503 },
  reset: { kind: 'transient', reason: 'network', detail: 'reset' },
  rejected: { kind: 'transient', reason: 'rejected', detail: 'rejected', status: 401 },
  busy: { kind: 'transient', reason: 'rate-limited', detail: 'busy', status: 429, retryAfterMs: 600_000 },
  refused: {
    kind: 'permanent',
    reason: 'account-inactive',
    detail: 'Your account is not active',
    status: 500,
  },
} as const satisfies Record<string, ServiceOutcome>
export type FleetAnswer = 'long' | 'short' | 'opaque' | keyof typeof failures
export type FleetStep =
  | { readonly do: 'answer'; readonly answer: FleetAnswer; readonly afterMs: number }
  | { readonly do: 'wait'; readonly ms: number }
  | { readonly do: 'need'; readonly host: number; readonly ms: number }
  | { readonly do: 'reject' | 'operator'; readonly host: number }
  | { readonly do: 'reboot' | 'restart'; readonly host: number }
  | {
      readonly do: 'reload'
      readonly host: number
      readonly credentials: string
      readonly share?: Partial<ShareConfig>
    }
  /** A kill -9 after so many further effects (a save, a request, a command to the store) and turns of promises. */
  | { readonly do: 'crash'; readonly host: number; readonly effects: number; readonly turns: number }
  | { readonly do: 'lose'; readonly kind: 'lost' | 'denied'; readonly host: number | null }
  | { readonly do: 'find' | 'flush' | 'mute' | 'unmute' | 'endLease' }

export type FleetStoryWorld = Awaited<ReturnType<typeof createFleetStoryWorld>>

const HOSTS = 3
const CLIENT_PACE_MS = 30_000
const DAY_MS = 86_400_000
const MAX_REQUESTS = 20_000

interface Life {
  readonly name: string
  readonly clock: Clock
  readonly keeper: Keeper
  readonly parts: Awaited<ReturnType<typeof createConfiguredKeeper>>
  readonly state: StateStore
  readonly stop: AbortController
  readonly running: Promise<unknown>
  config: Config
  isDead: boolean
}
interface Host {
  readonly name: string
  directory: string
  bootedAtMs: number
  life: Life | null
  crash: { effects: number; turns: number } | null
}
/** The knowledge of the whole fleet about an account, as long as nothing disturbed the store since. */
interface Account {
  isRefused: boolean
  notBeforeMs: number
  clientPacedUntilMs: number
  /** No start, reload or plan has a reason to ask before. */
  freshUntilMs: number
  underWay: Life | null
}

export async function createFleetStoryWorld(random: () => number) {
  const root = mkdtempSync(join('/dev/shm', 'kyc-tokend-fleet-story-'))
  let busy = 0
  const clock = createFakeClock({ isBusy: () => busy > 0 })
  const broken = new Set<string>()
  const servers = new Map<string, MemoryServer>()
  const accounts = new Map<string, Account>()
  const ends = new Map<string, number>()
  /** The process that makes these settings, or has made them. */
  const owners = new WeakMap<object, () => Life | null>()
  let answer: { answer: FleetAnswer; afterMs: number } = { answer: 'long', afterMs: 0 }
  let failure: StoreError | null = null
  /** Every host can use the store: only then is the fleet one client. */
  let isWhole = true
  let isPushing = true
  let copies = 0
  let requests = 0
  let connections = 0
  let issued = 0
  const nowMs = (): number => clock.now().bootMs

  const check = (claim: boolean, sentence: string): void => {
    if (!claim) broken.add(sentence)
  }
  function newDirectory(): string {
    copies += 1
    const path = join(root, String(copies))
    mkdirSync(join(path, 'run'), { recursive: true })
    mkdirSync(join(path, 'state'))
    return path
  }
  const hosts = Array.from({ length: HOSTS }, (_, index): Host => ({
    name: `host-${index + 1}`,
    directory: newDirectory(),
    bootedAtMs: 0,
    life: null,
    crash: null,
  }))
  const hostAt = (index: number): Host => hosts[index % HOSTS] as Host

  /** From here on every host goes by itself until the store is whole again. */
  function disturb(): void {
    accounts.clear()
  }
  function accountOf(name: string): Account {
    const known = accounts.get(name)
    if (known !== undefined) return known
    const fresh = {
      isRefused: false,
      notBeforeMs: -Infinity,
      clientPacedUntilMs: -Infinity,
      freshUntilMs: -Infinity,
      underWay: null,
    }
    accounts.set(name, fresh)
    return fresh
  }

  // ---- crashes --------------------------------------------------------------------------------------------------------

  const isDead = (life: Life | null): boolean => life?.isDead === true
  const never = (): Promise<never> => new Promise(() => undefined)

  /** Something that outlives the process begins or ends: a moment at which to kill it. */
  async function effect(life: Life | null): Promise<void> {
    const host = life && hosts.find(({ name }) => name === life.name)
    if (!host?.crash || host.life !== life) return
    host.crash.effects -= 1
    if (host.crash.effects > 0) return
    void kill(host, host.crash.turns)
    await Promise.resolve()
  }
  async function kill(host: Host, turns: number): Promise<void> {
    const { life } = host
    host.crash = null
    for (let turn = 0; turn < turns; turn += 1) await Promise.resolve()
    if (life === null || life.isDead) return
    life.isDead = true
    const next = newDirectory()
    cpSync(host.directory, next, { recursive: true })
    host.directory = next
    life.stop.abort()
    for (const account of accounts.values()) if (account.underWay === life) account.underWay = null
  }

  // ---- the store ------------------------------------------------------------------------------------------------------

  function openStore(settings: object, accountKey: string): Store {
    const owner = owners.get(settings) ?? (() => null)
    const server = servers.get(accountKey) ?? createMemoryServer(() => clock.now().wallMs)
    servers.set(accountKey, server)
    server.fail(failure)
    server.push(isPushing)
    const store = server.connect(owner()?.name ?? '')
    connections += 1
    const alive =
      <A extends unknown[], R>(command: (...values: A) => Promise<R>) =>
      async (...values: A): Promise<R> => {
        if (isDead(owner())) return never()
        await effect(owner())
        const result = await command(...values)
        if (isDead(owner())) return never()
        await effect(owner())
        return result
      }
    return {
      ...store,
      look: alive(store.look.bind(store)),
      acquire: alive(store.acquire.bind(store)),
      write: alive(store.write.bind(store)),
    }
  }

  // ---- the service ----------------------------------------------------------------------------------------------------

  function createFetchToken(config: Config): FetchToken {
    const owner = (config.share && owners.get(config.share)) ?? (() => null)
    const name = config.credentials.apiKey.reveal()
    return async (signal, { cause, beforeRequest }) => {
      await beforeRequest()
      const life = owner()
      const cancelled: ServiceOutcome = { kind: 'transient', reason: 'network', detail: 'Given up' }
      if (isDead(life)) return never()
      if (signal.aborted) return cancelled
      requests += 1
      if (requests > MAX_REQUESTS) throw new Error('The service is asked without end')
      checkRequest(name, { cause, life })
      const before = accountOf(name)
      before.underWay = life
      await effect(life)
      const { answer: kind, afterMs } = answer
      if (afterMs > 0) await clock.sleep(afterMs, signal)
      if (isDead(life)) return never()
      if (before.underWay === life) before.underWay = null
      if (signal.aborted) return cancelled
      const outcome = outcomeOf(kind)
      // A disturbance meanwhile has made another one of it.
      if (isWhole && accounts.get(name) === before) learn(before, { outcome, cause, life })
      // A host that began to ask by itself brings a token that is newer than what the fleet has since.
      else accounts.delete(name)
      await effect(life)
      return outcome
    }
  }

  function checkRequest(name: string, { cause, life }: { cause: Cause; life: Life | null }): void {
    if (!isWhole) return
    const account = accountOf(name)
    const because = `because of ${cause}`
    check(account.underWay === null || isPressed(life), `two requests at once, ${because}`)
    if (cause === 'operator') return
    // Other credentials are an operator's act.
    check(!account.isRefused || cause === 'reload', `a request while the fleet is refused, ${because}`)
    check(nowMs() >= account.notBeforeMs, `a request before the time that the service asked for, ${because}`)
    if (cause === 'client') {
      check(nowMs() >= account.clientPacedUntilMs, 'two requests caused by clients within 30 s')
    } else if (cause !== 'retry') {
      // A host that was killed while it followed a client's report follows it again, as a retry.
      check(nowMs() >= account.freshUntilMs, `a request while the fleet has a new token, ${because}`)
    }
  }

  /** The token ends so soon, or has ended so soon, that another host is waited for only for half of that time. */
  function isPressed(life: Life | null): boolean {
    const now = life?.clock.now()
    const token = life?.keeper.state().token
    return !!now && !!token && usableUntilMs(token) - now.bootMs < 34_000
  }

  /** Others know of it when it is in the store; until then the asker may crash, and then nothing is known. */
  function learn(
    account: Account,
    { outcome, cause, life }: { outcome: ServiceOutcome; cause: Cause; life: Life | null },
  ): void {
    const known = async (): Promise<void> => {
      for (let turn = 0; turn < 200 && !isDead(life); turn += 1) await Promise.resolve()
      if (isDead(life)) return
      account.isRefused = outcome.kind === 'permanent'
      account.notBeforeMs = -Infinity
      account.freshUntilMs = -Infinity
      if (outcome.kind === 'transient' && outcome.retryAfterMs !== undefined)
        account.notBeforeMs = nowMs() + outcome.retryAfterMs
      if (cause === 'client' && outcome.kind === 'ok') account.clientPacedUntilMs = nowMs() + CLIENT_PACE_MS
      if (outcome.kind !== 'ok') return
      const endsMs = Math.min(ends.get(outcome.accessToken) ?? Infinity, nowMs() + 900_000)
      account.freshUntilMs = nowMs() + (endsMs - nowMs()) / 4
    }
    void known()
  }

  function outcomeOf(kind: FleetAnswer): ServiceOutcome {
    const serverDateMs = clock.now().wallMs
    const grant = (accessToken: string, endsMs: number): ServiceOutcome => {
      ends.set(accessToken, endsMs)
      return { kind: 'ok', accessToken, serverDateMs }
    }
    const jwt = (lifeMs: number): ServiceOutcome => {
      issued += 1
      const iat = serverDateMs / 1000
      return grant(jwtOf({ iat, exp: iat + lifeMs / 1000 }, issued), nowMs() + lifeMs)
    }
    if (kind === 'long') return jwt(3_600_000)
    if (kind === 'short') return jwt(60_000)
    if (kind !== 'opaque') return failures[kind]
    issued += 1
    return grant(`opaque-${issued}`, Infinity)
  }

  // ---- hosts ----------------------------------------------------------------------------------------------------------

  function configOf(
    name: string,
    credentials: string,
    { owner, settings = {} }: { owner: () => Life | null; settings?: Partial<ShareConfig> | undefined },
  ): Config {
    const secret = new Secret(credentials)
    const share = {
      host: name,
      key: null,
      asks: true,
      whenAlone: 'fetch',
      timeoutMs: 1_000,
      ...settings,
    } as unknown as ShareConfig
    const config = {
      baseUrl: 'https://service.example',
      service: standardService('https://service.example'),
      credentials: { apiKey: secret, apiSecret: secret },
      request: { timeoutMs: 15_000 },
      retry: { initialDelayMs: 1_000, maxDelayMs: 300_000 },
      refresh: { maxAgeMs: 900_000 },
      share,
    } as unknown as Config
    owners.set(share, owner)
    return config
  }

  async function start(host: Host, credentials: string): Promise<void> {
    const own: Clock = {
      now() {
        const { bootMs, wallMs } = clock.now()
        return { bootMs: bootMs - host.bootedAtMs, wallMs }
      },
      schedule: (ms, call) => clock.schedule(ms, call),
      sleep: (ms, signal) => clock.sleep(ms, signal),
    }
    let life: Life | null = null
    const config = configOf(host.name, credentials, { owner: () => life })
    const directories = {
      runtimeDirectory: join(host.directory, 'run'),
      stateDirectory: join(host.directory, 'state'),
    }
    busy += 1
    const log = (): void => undefined
    const state = await createStateStore({ ...directories, clock: own, log })
    const save = async (...saved: Parameters<StateStore['save']>): Promise<void> => {
      if (isDead(life)) return
      await effect(life)
      busy += 1
      await state.save(...saved).finally(() => (busy -= 1))
      await effect(life)
    }
    const parts = await createConfiguredKeeper(config, {
      env: {},
      clock: own,
      log,
      store: { ...state, save },
      random,
      openStore: (settings, { accountKey }) => Promise.resolve(openStore(settings, accountKey)),
      createFetchToken: (given) => createFetchToken(given as unknown as Config),
    })
    busy -= 1
    const stop = new AbortController()
    const { keeper, sharing } = parts
    life = {
      name: host.name,
      clock: own,
      keeper,
      parts,
      state,
      stop,
      running: never(),
      config,
      isDead: false,
    }
    host.life = life
    const running = Promise.all([keeper.run(stop.signal), sharing.run(stop.signal)])
    Object.assign(life, { running })
    await clock.settle()
  }

  /** systemd starts what was killed. */
  async function revive(): Promise<void> {
    for (const host of hosts) if (isDead(host.life)) await start(host, credentialsOf(host))
  }
  const credentialsOf = ({ life }: Host): string => life?.config.credentials.apiKey.reveal() ?? 'one'

  async function restart(host: Host): Promise<void> {
    const life = host.life as Life
    host.crash = null
    if (life.isDead) return
    life.stop.abort()
    await life.running
    busy += 1
    await life.state.close(life.keeper.state()).finally(() => (busy -= 1))
    life.isDead = true
    await start(host, credentialsOf(host))
  }

  async function reboot(host: Host): Promise<void> {
    await kill(host, 0)
    rmSync(join(host.directory, 'run'), { recursive: true })
    mkdirSync(join(host.directory, 'run'))
    host.bootedAtMs = nowMs() - 1_000
  }

  function reload(host: Host, credentials: string, settings?: Partial<ShareConfig>): void {
    const life = host.life as Life
    if (life.isDead) return
    const next = configOf(host.name, credentials, { owner: () => life, settings })
    life.config = next
    life.parts.prepare(next)()
  }

  function fail(error: StoreError | null, owner?: string): void {
    disturb()
    isWhole = error === null
    if (owner === undefined) failure = error
    for (const server of servers.values()) server.fail(error, owner)
  }

  function checkHosts(): void {
    for (const { life } of hosts) {
      if (life === null || life.isDead) continue
      const state = life.keeper.state()
      const now = life.clock.now()
      const token = usableToken(state, now)
      if (token !== null)
        check((ends.get(token.accessToken) ?? -Infinity) > nowMs() - 1, 'a token is handed out after its end')
      if (phaseOf(state, now) === 'refused') check(state.objection !== null, 'a refusal without an alert')
      else check(dueAtMs(state) - now.bootMs <= DAY_MS, 'nothing is planned within a day')
    }
  }

  async function act(step: FleetStep): Promise<void> {
    const host = hostAt('host' in step ? (step.host ?? 0) : 0)
    const { keeper, clock: own, stop } = host.life as Life
    switch (step.do) {
      case 'answer':
        answer = step
        return
      case 'reload':
        return reload(host, step.credentials, step.share)
      case 'crash':
        if (step.effects === 0) return kill(host, step.turns)
        host.crash = { effects: step.effects, turns: step.turns }
        return
      case 'reboot':
        return reboot(host)
      case 'restart':
        return restart(host)
      case 'lose':
        return fail(new StoreError(step.kind, step.kind), step.host === null ? undefined : host.name)
      case 'find':
        for (const { name } of hosts) fail(null, name)
        fail(null)
        return
      case 'flush':
        disturb()
        for (const server of servers.values()) server.flush()
        return
      case 'mute':
      case 'unmute':
        isPushing = step.do === 'unmute'
        for (const server of servers.values()) server.push(isPushing)
        return
      case 'endLease':
        disturb()
        for (const server of servers.values()) server.remove('lease')
        return
      case 'wait':
        return clock.advance(step.ms)
      case 'need':
        return keeper.need(step.ms)
      case 'reject':
        keeper.reject(usableToken(keeper.state(), own.now())?.fingerprint ?? 'unknown')
        return
      case 'operator':
        void keeper.refresh(stop.signal)
    }
  }

  async function play(step: FleetStep): Promise<void> {
    await act(step)
    await clock.settle()
    await revive()
    checkHosts()
  }

  for (const host of hosts) await start(host, 'one')
  return {
    play,
    /** The rules that were broken, in sentences. */
    broken: () => [...broken],
    /** The store is back, the service gives tokens, all have the same account, and a refusal is lifted by one operator. */
    async calm() {
      for (const host of hosts) host.crash = null
      await play({ do: 'answer', answer: 'long', afterMs: 0 })
      await play({ do: 'find' })
      await play({ do: 'unmute' })
      for (const [index, host] of hosts.entries())
        if (credentialsOf(host) !== 'one') await play({ do: 'reload', host: index, credentials: 'one' })
      await clock.advance(60_000)
      await play({ do: 'operator', host: 0 })
      await clock.advance(60_000)
    },
    /** The tokens that the hosts hand out. */
    tokens: () =>
      hosts.map(({ life }) =>
        life === null ? null : (usableToken(life.keeper.state(), life.clock.now())?.accessToken ?? null),
      ),
    requests: () => requests,
    /** Connections to a store that were ever opened. */
    connections: () => connections,
    advance: (ms: number) => clock.advance(ms),
    async end() {
      for (const { life } of hosts) {
        life?.stop.abort()
        if (!isDead(life)) await life?.running
      }
      await clock.settle()
      rmSync(root, { recursive: true, force: true })
    },
  }
}
