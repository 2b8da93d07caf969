// The token as a credential of systemd units (`LoadCredential=kyc-token:/run/kyc-tokend/credential.sock`):
// written once to each connection, in the format that the name of the credential chooses, as soon as there is
// one.
import { createServer, type Socket } from 'node:net'
import { extname } from 'node:path'
import { withTimeout, type Clock } from '../lib/clock.ts'
import { logFault } from '../lib/internal-fault.ts'
import type { Log } from '../lib/log.ts'
import { shellWord } from '../lib/display-text.ts'
import { MAX_WAIT_SECONDS, type Fault, type TokenResult } from '../protocol.ts'
import { adoptListeners, type Listener } from './listener/listener.ts'
import type { Peer, Peers } from './peers.ts'
import type { CachedToken, Replies, Result } from './replies.ts'
import type { TokenAudit } from './token-audit.ts'
import { textOf, type TextFormat } from './token-format.ts'

const FORMATS: Readonly<Record<string, TextFormat>> = { '.header': 'header', '.json': 'json', '.env': 'env' }
/**
 * systemd takes at most 1 MiB and fails the unit otherwise; an end without data, or a reset, is an empty
 * credential for it.
 */
const TOO_MUCH_BYTES = 1_048_576 + 4_096
/** Refusals under way: each has up to 208 KiB in the kernel, which count as the daemon's memory. */
const MAX_REFUSING = 64
/** How often the units that wait are checked for those that have gone: of that there is no event. */
const GONE_EVERY_MS = 1_000
/** The time for refusals under way when the daemon stops: systemd reads at once, another program may not. */
const STOP_MS = 4_000
const BEFORE_UNIT = '/unit/'

/** The unit and the name of the credential, as systemd gives them in the address from which it connects. */
interface Credential {
  readonly unit: string
  readonly id: string
}

/** `fds` listen already, for root alone. */
export function createCredentialServer(
  fds: readonly number[],
  options: {
    replies: Replies
    peers: Peers
    audit: TokenAudit
    log: Log
    clock: Pick<Clock, 'sleep'>
  },
) {
  const { replies, peers, audit, log, clock } = options
  const stop = new AbortController()
  /** The open connections, each with the promise that resolves when its answer is written. */
  const serving = new Map<Socket, Promise<void>>()
  /** Those that wait for a token, each with what ends its wait. */
  const waiting = new Map<Socket, AbortController>()
  const refuse = createRefusals()
  let isWatching = false
  let listener: Listener | null = null

  /** Ends the waits of units that have gone, or were stopped. */
  async function watchWaiting(): Promise<void> {
    if (isWatching) return
    isWatching = true
    while (waiting.size > 0 && !stop.signal.aborted) {
      await clock.sleep(GONE_EVERY_MS, stop.signal)
      for (const [socket, wait] of waiting) if (peers.hasHungUp(socket)) wait.abort()
    }
    isWatching = false
  }

  async function replyTo(socket: Socket): Promise<Result<CachedToken>> {
    const wait = new AbortController()
    waiting.set(socket, wait)
    void watchWaiting()
    if (stop.signal.aborted) wait.abort()
    try {
      return await replies.token({ waitSeconds: MAX_WAIT_SECONDS }, wait)
    } finally {
      waiting.delete(socket)
    }
  }

  async function serve(socket: Socket): Promise<void> {
    const peer = peers.of(socket)
    if (peer?.isPrivileged !== true) return void socket.destroy()
    const credential = credentialOf(peers.addressOf(socket) ?? '')
    // systemd has ended its side already. Unread, that end would keep the connection open.
    socket.resume()
    const reply = await replyTo(socket)
    if (peers.hasHungUp(socket)) return void socket.destroy()
    if ('fault' in reply) {
      logFailed(reply.fault, { peer, credential })
      return refuse(socket)
    }
    const format = FORMATS[extname(credential?.id ?? '')] ?? 'raw'
    audit.recordRead({ peer, lastRead: null }, 'credential', credential?.unit ?? null)
    return end(socket, textOf[format](JSON.parse(reply.value.json) as TokenResult))
  }

  function logFailed(
    fault: Fault,
    { peer, credential }: { peer: Peer; credential: Credential | null },
  ): void {
    const start = credential === null ? '' : `: sudo systemctl start ${shellWord(credential.unit)}`
    log('error', 'A unit gets no token as its credential, and does not start', {
      event: 'credential-failed',
      unit: credential?.unit ?? null,
      pid: peer.pid,
      reason: fault.reason ?? fault.code,
      error: fault.message,
      remedy: `Correct that, then start the unit again${start}`,
    })
  }

  function onConnection(socket: Socket): void {
    // systemd goes away in the midst of what is too much.
    socket.on('error', () => undefined)
    socket.once('close', () => serving.delete(socket))
    const served = serve(socket).catch(async (error: unknown) => {
      logFault(log, error, { transport: 'credential' })
      await refuse(socket)
    })
    serving.set(socket, served)
  }

  return {
    /** Throws UserError (78) if a descriptor is no listening socket. */
    async open(): Promise<void> {
      listener = await adoptListeners(fds, {
        createServer: () => createServer({ allowHalfOpen: true }, onConnection),
        transport: 'credential',
        log,
      })
    },
    /**
     * Refuses those who wait, so that none is left with an empty credential. Others wait at the socket for
     * the next daemon.
     */
    async close(): Promise<void> {
      await listener?.close()
      stop.abort()
      for (const wait of waiting.values()) wait.abort()
      await withTimeout(STOP_MS, Promise.all(serving.values()), clock)
      for (const socket of serving.keys()) socket.destroy()
    },
  }
}

/**
 * Returns the function that sends too much. It resolves when the kernel has all of it, or the connection is
 * closed. All refusals send the same bytes.
 */
function createRefusals(): (socket: Socket) => Promise<void> {
  const queue: (() => void)[] = []
  let tooMuch: Buffer | undefined
  let refusing = 0

  return async (socket) => {
    if (refusing < MAX_REFUSING) refusing += 1
    else await new Promise<void>((resolve) => queue.push(resolve))
    tooMuch ??= Buffer.alloc(TOO_MUCH_BYTES, ' ')
    await end(socket, tooMuch)
    const next = queue.shift()
    if (next === undefined) refusing -= 1
    else next()
  }
}

/** Resolves when the kernel has all of it, or the connection is closed. */
async function end(socket: Socket, content: string | Buffer): Promise<void> {
  await new Promise<void>((resolve) => {
    socket.once('close', () => resolve())
    socket.end(content, () => resolve())
  })
}

/** From `\0HEX/unit/UNIT/ID` (systemd.exec(5), LoadCredential=); null: another program of root's connects. */
function credentialOf(address: string): Credential | null {
  const start = address.indexOf(BEFORE_UNIT) + BEFORE_UNIT.length
  const slash = address.lastIndexOf('/')
  if (start < BEFORE_UNIT.length || slash < start) return null
  return { unit: address.slice(start, slash), id: address.slice(slash + 1) }
}
