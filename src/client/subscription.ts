// One subscription for all listeners of a client: the daemon allows a connection only so many.
import type { TokenResult } from '../protocol.ts'
import type { ReconnectingConnection } from './connection.ts'
import type { TokenClientError } from './errors.ts'
import { disconnectError, faultError } from './faults.ts'
import type { TokenSource } from './token-source.ts'

/** Two daemons, one before and one after a restart, give the same expiry with less difference than this. */
const SAME_INSTANT_MS = 2_000
/** A daemon that is back within this time was restarted, which is no fault. */
const RESTART_MS = 1_000

export function createSubscriptions(connection: ReconnectingConnection, name: string | undefined) {
  /** Each with the function that ends it. */
  const subscribers = new Map<Subscriber, () => void>()
  let newest: Notification | undefined
  let end: (() => void) | undefined
  let restart: NodeJS.Timeout | undefined

  function notifyAll(notification: Notification): void {
    clearTimeout(restart)
    restart = undefined
    newest = notification
    for (const subscriber of subscribers.keys()) notification(subscriber)
  }

  function open(): () => void {
    return connection.open({
      // There is no way to unsubscribe: another subscription on this connection replaces the one before.
      id: 'subscription',
      isBackground: true,
      frame: () => ({ type: 'token.subscribe', data: { client: name } }),
      onAnswer: ({ type, data }) => {
        if (type === 'fault') {
          const fault = faultError(data)
          return notifyAll((subscriber) => subscriber.onFault(fault))
        }
        const token = data as unknown as TokenResult
        if (typeof token.accessToken === 'string') notifyAll((subscriber) => subscriber.onToken(token))
      },
      onDisconnect: (disconnect) => {
        if (disconnect.isClosed) return true
        const error = disconnectError(disconnect)
        const report = (): void => notifyAll((subscriber) => subscriber.onFault(error))
        if (!disconnect.wasEverConnected) report()
        else restart ??= setTimeout(report, RESTART_MS)
        return true
      },
    })
  }

  const subscribe: TokenSource['subscribe'] = (listener, { onFault, signal } = {}) => {
    const subscriber = createSubscriber(listener, onFault)
    const unsubscribe = (): void => {
      signal?.removeEventListener('abort', unsubscribe)
      subscriber.end()
      if (!subscribers.delete(subscriber) || subscribers.size > 0) return
      clearTimeout(restart)
      end?.()
      end = newest = restart = undefined
    }
    if (signal?.aborted === true) return unsubscribe
    signal?.addEventListener('abort', unsubscribe)
    subscribers.set(subscriber, unsubscribe)
    if (end === undefined) end = open()
    else newest?.(subscriber)
    return unsubscribe
  }

  const close = (): void => {
    for (const unsubscribe of subscribers.values()) unsubscribe()
  }
  return { subscribe, close }
}

type Notification = (subscriber: Subscriber) => void
type Subscriber = ReturnType<typeof createSubscriber>

/** Calls the listener with what is new to it. */
function createSubscriber(
  listener: (token: TokenResult) => void,
  onFault: ((fault: TokenClientError) => void) | undefined,
) {
  let lastToken: TokenResult | undefined
  let lastFault: TokenClientError | undefined
  let isEnded = false
  /** Outside the connection's own call. In a promise, because fake timers hold everything else. */
  const notify = async (notification: () => void): Promise<void> => {
    await Promise.resolve()
    try {
      if (!isEnded) notification()
    } catch (error) {
      // An uncaught exception of the program, whose listener it is.
      queueMicrotask(() => {
        throw error
      })
    }
  }
  return {
    onToken(token: TokenResult): void {
      lastFault = undefined
      if (lastToken !== undefined && isSame(lastToken, token)) return
      lastToken = token
      void notify(() => listener(token))
    },
    onFault(fault: TokenClientError): void {
      if (lastFault?.code === fault.code && lastFault.reason === fault.reason) return
      lastFault = fault
      void notify(() => onFault?.(fault))
    },
    end(): void {
      isEnded = true
    },
  }
}

function isSame(one: TokenResult, other: TokenResult): boolean {
  return (
    one.fingerprint === other.fingerprint &&
    one.state === other.state &&
    one.stale === other.stale &&
    Math.abs(Date.parse(one.expiresAt) - Date.parse(other.expiresAt)) < SAME_INSTANT_MS
  )
}
