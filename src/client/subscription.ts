// One subscription for all listeners of a client: the daemon limits the subscriptions of a connection.
import { tokenCopy, tokenOf } from './answers.ts'
import type { ReconnectingConnection } from './connection.ts'
import { badRequest, disconnectError, faultError, type TokenClientError } from './errors.ts'
import { checkedSignal, onAbort } from './signals.ts'
import type { ClientToken, SubscribeOptions, TokenSource } from './token-source.ts'

/** The expiry of one token, as the daemons before and after a restart give it, differs by less than this. */
const SAME_INSTANT_MS = 2_000
/** Who answers again within this time was restarted, which is no fault: a second, and the next connect. */
const RESTART_MS = 2_000

/** Returns the function that subscribes. The signal ends all subscriptions; then that throws its reason. */
export function createSubscriptions(
  connection: ReconnectingConnection,
  client: { readonly name: string | undefined; readonly signal: AbortSignal },
): TokenSource['subscribe'] {
  /** Each with the function that ends it. */
  const subscribers = new Map<Subscriber, () => void>()
  let newest: Notification | undefined
  let end: (() => void) | undefined
  let restart: NodeJS.Timeout | undefined
  /** The last reason why the daemon is away. */
  let absence: Notification = {}

  function notifyAll(notification: Notification): void {
    clearTimeout(restart)
    restart = undefined
    newest = notification
    for (const subscriber of subscribers.keys()) notify(subscriber, notification)
  }

  /** Reports what is new to the subscriber. */
  function notify(subscriber: Subscriber, { token, fault }: Notification): void {
    const { lastToken, lastFault, listener, onFault } = subscriber
    subscriber.lastFault = fault
    const isNew = fault?.code !== lastFault?.code || fault?.reason !== lastFault?.reason
    if (isNew) void deliver(subscriber, () => onFault?.(fault ?? null))
    if (token === undefined || (lastToken !== undefined && isSame(lastToken, token))) return
    subscriber.lastToken = token
    void deliver(subscriber, () => listener(tokenCopy(token)))
  }

  /** Calls the program outside of the connection's call; by a promise, because fake timers hold all else. */
  async function deliver(subscriber: Subscriber, call: () => void): Promise<void> {
    await Promise.resolve()
    try {
      if (subscribers.has(subscriber)) call()
    } catch (error) {
      // It becomes an uncaught exception of the program, to which the listener belongs.
      queueMicrotask(() => {
        throw error
      })
    }
  }

  function open(): () => void {
    return connection.open({
      // There is no way to unsubscribe: another subscription on this connection replaces the one before.
      id: 'subscription',
      isBackground: true,
      frame: () => ({ type: 'token.subscribe', data: { client: client.name } }),
      onAnswer(answer) {
        const token = tokenOf(answer)
        if (answer.type === 'fault') notifyAll({ fault: faultError(answer.data) })
        else if (token !== undefined) notifyAll({ token })
      },
      onDisconnect: (disconnect) => {
        const fault = disconnectError(disconnect)
        absence = { fault }
        if (disconnect.wasEverConnected) restart ??= setTimeout(() => notifyAll(absence), RESTART_MS)
        else notifyAll({ fault })
        return true
      },
    })
  }

  client.signal.addEventListener('abort', () => {
    for (const unsubscribe of subscribers.values()) unsubscribe()
  })
  return (listener, options) => {
    const onFault = options?.onFault
    const signal = checkedSignal(options?.signal)
    for (const callback of [listener, onFault ?? listener])
      if (typeof callback !== 'function') throw badRequest('The listener and onFault must be functions.')
    client.signal.throwIfAborted()
    const subscriber: Subscriber = { listener, onFault }
    let leave = (): void => undefined
    const unsubscribe = (): void => {
      leave()
      if (!subscribers.delete(subscriber) || subscribers.size > 0) return
      clearTimeout(restart)
      end?.()
      end = newest = restart = undefined
    }
    if (signal?.aborted === true) return unsubscribe
    if (signal !== undefined) leave = onAbort(signal, unsubscribe)
    subscribers.set(subscriber, unsubscribe)
    if (end === undefined) end = open()
    else if (newest !== undefined) notify(subscriber, newest)
    return unsubscribe
  }
}

interface Notification {
  readonly token?: ClientToken
  readonly fault?: TokenClientError
}
interface Subscriber {
  readonly listener: (token: ClientToken) => void
  readonly onFault: SubscribeOptions['onFault']
  lastToken?: ClientToken
  lastFault?: TokenClientError | undefined
}

function isSame(before: ClientToken, now: ClientToken): boolean {
  return (
    before.fingerprint === now.fingerprint &&
    before.state === now.state &&
    before.stale === now.stale &&
    Math.abs(Date.parse(before.expiresAt) - Date.parse(now.expiresAt)) < SAME_INSTANT_MS
  )
}
