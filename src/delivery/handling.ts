// What happens to a connection, whatever its protocol: it is read, goes on, and ends for a named reason.
import { logFault } from '../lib/internal-fault.ts'
import type { Log } from '../lib/log.ts'
import type { Client, Protocol } from './client.ts'
import { dropReasons, type DropReason } from './limits.ts'
import type { Memory } from './memory.ts'
import type { Peer } from './peers.ts'
import type { Turns } from './turns.ts'

export function createHandling<State>(
  protocol: Protocol<State>,
  { memory, turns, log }: { memory: Memory; turns: Turns; log: Log },
) {
  const reports = createReports(protocol.transport, log)

  /** Returns whether more is read. */
  function receive(client: Client & State, input: Buffer, length: number): boolean {
    try {
      if (!client.isClosing) protocol.receive(client, input, length)
    } catch (error) {
      fail(client, error)
    }
    return client.isReading
  }

  /** Goes on with the client in a later turn of the event loop: meanwhile others are served. */
  function plan(client: Client & State): void {
    if (!client.isClosing) turns.plan(client.goOn)
  }

  /** An internal error while serving a client costs its connection, not the process. */
  function safely(client: Client & State, step: (client: Client & State) => void): void {
    if (client.isClosing) return
    try {
      step(client)
    } catch (error) {
      fail(client, error)
    }
  }

  function fail(client: Client, error: unknown): void {
    logFault(log, error, { transport: protocol.transport })
    end(client, 'fault-of-ours')
  }

  /** Ends the connection, after these last words if the client reads them. */
  function end(client: Client, reason: DropReason, lastWords = ''): void {
    if (client.isClosing) return
    client.isClosing = true
    reports.noteDrop(client.peer, reason)
    client.waits.abort()
    setReading(client, false)
    if (lastWords === '') return void client.socket.destroy()
    client.socket.write(lastWords)
    client.socket.destroySoon()
  }

  /** The same, also of one that does not read its last words. */
  function drop(client: Client, reason: DropReason): void {
    if (client.isClosing) client.socket.destroy()
    else end(client, reason)
  }

  /** A subscriber who may not use the socket any more is sent the fault, and the connection ends. */
  function endSubscriber(client: Client & State): void {
    client.pushed = 0
    safely(client, protocol.push)
    client.subscriptions.length = 0
    reports.noteDrop(client.peer, 'denied')
    // One that waits for a token, too, is answered first. Node keeps what is written until this turn is over.
    if (client.waiting === 0) setImmediate(() => client.socket.destroySoon())
  }

  /**
   * Reads from the client, or leaves what it sends in the kernel: at once, also amid a turn of the event
   * loop.
   */
  function setReading(client: Client, wantsInput: boolean): void {
    client.wantsInput = wantsInput
    const isReading = wantsInput && !memory.isFull()
    if (isReading === client.isReading) return
    client.isReading = isReading
    if (isReading) client.socket.resume()
    else client.socket.pause()
  }

  /** Has what the client holds now counted. */
  function recount(client: Client & State): void {
    const held = protocol.heldBy(client)
    if (held !== client.held && !client.isClosing) memory.setHeld(client, held)
  }

  /** Reads on if more input can be used, and has what the client holds counted. */
  function settle(client: Client & State, wantsInput: boolean): void {
    if (client.wantsInput !== wantsInput) setReading(client, wantsInput)
    recount(client)
  }

  /** Answers when the reply is there, unless the client has gone. */
  async function whenReady<T>(client: Client, reply: Promise<T>, answer: (reply: T) => void): Promise<void> {
    try {
      const value = await reply
      if (!client.isClosing) answer(value)
    } catch (error) {
      fail(client, error)
    }
  }

  return {
    ...reports,
    recount,
    whenReady,
    receive,
    plan,
    safely,
    fail,
    end,
    drop,
    endSubscriber,
    setReading,
    settle,
  }
}

/** What is counted and logged of connections that end. */
function createReports(transport: string, log: Log) {
  const dropped = Object.fromEntries(dropReasons.map((reason) => [reason, 0])) as Record<DropReason, number>

  /** Counts and logs that a client loses its connection. */
  function noteDrop(peer: Peer | null, reason: DropReason): void {
    dropped[reason] += 1
    const fields = { transport, reason, ...(peer && { uid: peer.uid, pid: peer.pid }) }
    log('debug', 'A client lost its connection', { event: 'client-dropped', ...fields })
  }

  return { dropped, noteDrop }
}
