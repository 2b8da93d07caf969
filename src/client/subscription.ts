// One subscription for all listeners of a client: the daemon allows a connection only so many.
import type { TokenResult } from '../protocol.ts'
import { withoutId } from './call.ts'
import type { ReconnectingConnection } from './connection.ts'
import type { TokenClientError } from './errors.ts'
import { disconnectError, faultError } from './faults.ts'
import type { TokenSource } from './token-source.ts'

/** Two daemons, one before and one after a restart, give the same expiry with less difference than this. */
const SAME_INSTANT_MS = 2_000

export interface Subscriptions {
  readonly subscribe: TokenSource['subscribe']
  /** Ends all of them. */
  close(): void
}

export function createSubscriptions(
  connection: ReconnectingConnection,
  name: string | undefined,
): Subscriptions {
  const subscribers = new Set<Subscriber>()
  let newest: Notification | undefined
  let end: (() => void) | undefined

  function notifyAll(notification: Notification): void {
    newest = notification
    for (const subscriber of subscribers) notification(subscriber)
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
        const token = withoutId(data) as TokenResult
        if (typeof token.accessToken === 'string') notifyAll((subscriber) => subscriber.onToken(token))
      },
      onDisconnect: (disconnect) => {
        const error = disconnectError(disconnect)
        if (!disconnect.isClosed) notifyAll((subscriber) => subscriber.onFault(error))
        return true
      },
    })
  }

  return {
    subscribe(listener, { onFault } = {}) {
      const subscriber = createSubscriber(listener, onFault)
      subscribers.add(subscriber)
      if (end === undefined) end = open()
      else newest?.(subscriber)
      return () => {
        subscriber.end()
        if (!subscribers.delete(subscriber) || subscribers.size > 0) return
        end?.()
        end = newest = undefined
      }
    },
    close() {
      for (const subscriber of subscribers) subscriber.end()
      subscribers.clear()
    },
  }
}

type Notification = (subscriber: Subscriber) => void

interface Subscriber {
  onToken(token: TokenResult): void
  onFault(fault: TokenClientError): void
  end(): void
}

/** Calls the listener with what is new to it. */
function createSubscriber(
  listener: (token: TokenResult) => void,
  onFault: ((fault: TokenClientError) => void) | undefined,
): Subscriber {
  let lastToken: TokenResult | undefined
  let lastFault: TokenClientError | undefined
  let isEnded = false
  /** Outside the connection's own call: what is thrown there is the program's own. */
  const notify = (notification: () => void): void => {
    queueMicrotask(() => {
      if (!isEnded) notification()
    })
  }
  return {
    onToken(token) {
      lastFault = undefined
      if (lastToken !== undefined && isSame(lastToken, token)) return
      lastToken = token
      notify(() => listener(token))
    },
    onFault(fault) {
      if (lastFault?.code === fault.code && lastFault.reason === fault.reason) return
      lastFault = fault
      notify(() => onFault?.(fault))
    },
    end() {
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
