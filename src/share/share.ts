// The face of the room: the keeper's attempts are made in the fleet, and the keeper is offered what other hosts
// were answered. One connection, and a host for the account in use and for each that is a candidate.
import { hostname } from 'node:os'
import type { ShareConfig } from '../config/config.ts'
import { createWakeableSleep, withTimeout, type Clock } from '../lib/clock.ts'
import type { Log } from '../lib/log.ts'
import { isSame } from '../lib/secret.ts'
import type { ExpirySource, StatusResult } from '../protocol.ts'
import type { FetchOutcome, FetchToken } from '../token/outcome.ts'
import { createHost, LOOK_EVERY_MS, type Account, type Host } from './host.ts'
import { createSeal } from './seal.ts'
import { openStore } from './store.ts'
import { createTelemetry } from './telemetry.ts'

export type { Account } from './host.ts'

/** The token in use. Instants are of the boot clock. */
interface Held {
  /** The pair that it was asked for with, as `pairId` of an account. */
  readonly pairId: string
  readonly accessToken: string
  readonly expirySource: ExpirySource
  readonly receivedMs: number
  readonly endsMs: number
  readonly usableUntilMs: number
}

export interface ShareOptions {
  readonly clock: Clock
  readonly random: () => number
  readonly log: Log
  readonly keeper: {
    /** Null: there is none that can be used. */
    readonly held: () => Held | null
    readonly isRefused: () => boolean
    /** False: an attempt is under way, and nothing has changed. */
    readonly offer: (outcome: FetchOutcome) => boolean
  }
  /** Redis, unless it is given. */
  readonly open?: typeof openStore | undefined
}

export type Share = ReturnType<typeof createShare>

/** The time after which an outcome that the keeper could not take is offered again. */
const OFFER_AGAIN_MS = 100

export function createShare({ keeper, open = openStore, ...around }: ShareOptions) {
  const { clock } = around
  const name = hostname()
  const { sleep, wake } = createWakeableSleep(clock)
  let isWoken = false
  let connection: ReturnType<typeof connect> | null = null
  let current: Account | null = null
  /** The attempt that is under way. */
  let underWay: Promise<FetchOutcome> | null = null

  function wakeUp(): void {
    isWoken = true
    wake()
  }

  function connect(settings: ShareConfig) {
    const store = open(settings, around)
    void store.then(({ onReady }) => onReady(wakeUp))
    const telemetry = createTelemetry({ ...around, settings })
    return { settings, store, telemetry, hosts: new Map<string, Host>() }
  }

  function hostOf({ text, share }: Account): Host {
    const { hosts, ...connected } = connection!
    const seal = createSeal(JSON.stringify([text, share.key?.reveal() ?? null]))
    const key = seal.keyOf('', 'record')
    const usableLeftMs = (): number => Math.max(0, (keeper.held()?.usableUntilMs ?? 0) - clock.now().bootMs)
    const host = hosts.get(key) ?? createHost({ ...around, ...connected, seal, name, usableLeftMs })
    hosts.set(key, host)
    return host
  }

  /** After a start or a reload the keeper may have a token of which the fleet does not know. */
  function resume({ pairId }: Account, { answers }: Host): void {
    const held = keeper.held()
    const latest = answers.latest()
    if (held?.pairId !== pairId || answers.isNew()) return
    const { accessToken, expirySource, receivedMs: sentMs, endsMs } = held
    const isSameToken = latest?.answer.kind === 'ok' && latest.answer.accessToken === accessToken
    if (isSameToken || (latest !== null && latest.sentMs >= sentMs)) return
    const answer = { kind: 'ok', accessToken, expirySource } as const
    answers.learn({ answer, by: name, sentMs, endsMs, isResumed: true }, latest, false)
    answers.delivered()
  }

  /** Looks at the store, and offers the keeper what it lacks until it takes it; an attempt takes it by itself. */
  async function look(account: Account, signal: AbortSignal): Promise<void> {
    const host = hostOf(account)
    const { answers } = host
    resume(account, host)
    await host.look().catch(connection!.telemetry.failed)
    const isWanted = (): boolean => answers.isNew() && current === account && underWay === null
    while (isWanted() && !signal.aborted) {
      if (answers.latest()!.answer.kind === 'permanent' && keeper.isRefused()) answers.delivered()
      else if (keeper.offer(answers.outcome())) host.adopt()
      else await clock.sleep(OFFER_AGAIN_MS, signal)
    }
  }

  return {
    /** This account is in use from now on; null: this host shares no more. */
    use(account: Account | null): void {
      if (connection !== null && !isSame(connection.settings, account?.share)) {
        void connection.store.then(({ close }) => close())
        connection = null
      }
      if (account !== null) connection ??= connect(account.share)
      current = account
      wakeUp()
    },
    /** One attempt with this account, which is in use or a candidate. */
    async attempt(account: Account, ...attempt: Parameters<FetchToken>): Promise<FetchOutcome> {
      const host = hostOf(account)
      if (current === account) resume(account, host)
      underWay = host.attempt(account, ...attempt)
      try {
        return await underWay
      } finally {
        underWay = null
        if (host.answers.isNew()) wakeUp()
      }
    },
    /** Looks every 15 s and at each connection until the signal is aborted. Rejects for internal errors alone. */
    async run(signal: AbortSignal): Promise<void> {
      while (!signal.aborted) {
        isWoken = false
        if (current !== null && underWay === null) await look(current, signal)
        if (!isWoken) await sleep(LOOK_EVERY_MS, signal)
      }
      // An attempt that ends gives its lease back.
      await withTimeout(connection?.settings.timeoutMs ?? 0, Promise.allSettled([underWay]), clock)
      ;(await connection?.store)?.close()
    },
    status(): StatusResult['share'] {
      if (connection === null || current === null) return null
      return { ...connection.telemetry.state(), askedBy: hostOf(current).answers.latest()?.by ?? null }
    },
    /** For metrics. */
    sample: () => connection?.telemetry.sample() ?? null,
  }
}
