// The token as a credential of systemd units (`LoadCredential=kyc-token:/run/kyc-tokend/credential.sock`):
// written once to each connection, in the format that the name of the credential chooses, as soon as there is
// one.
import { createServer, type Socket } from 'node:net'
import { extname } from 'node:path'
import { errorMessage } from '../lib/error.ts'
import type { Log } from '../lib/log.ts'
import { shellWord } from '../lib/display-text.ts'
import { raceAbort } from '../lib/tasks.ts'
import { MAX_WAIT_SECONDS, type Fault, type TokenResult } from '../protocol.ts'
import { adoptListeners, type Listener } from './listener/listener.ts'
import type { Peer, Peers } from './peers.ts'
import type { Replies } from './replies.ts'
import type { TokenAudit } from './token-audit.ts'
import { textOf, type TextFormat } from './token-format.ts'

const FORMATS: Readonly<Record<string, TextFormat>> = { '.header': 'header', '.json': 'json', '.env': 'env' }
/**
 * systemd takes at most 1 MiB and fails the unit otherwise; an end without data, or a reset, is an empty
 * credential for it.
 */
const TOO_MUCH_BYTES = 1_048_576 + 4_096
/**
 * The time for those who are answered when the daemon stops: systemd reads at once, another program may never
 * do so.
 */
const STOP_MS = 2_500
const BEFORE_UNIT = '/unit/'

/** The unit and the name of the credential, as systemd gives them in the address from which it connects. */
interface Credential {
  readonly unit: string
  readonly id: string
}

/** `fds` listen already, for root alone. */
export function createCredentialServer(
  fds: readonly number[],
  options: { replies: Replies; peers: Peers; audit: TokenAudit; log: Log },
) {
  const { replies, peers, audit, log } = options
  const stop = new AbortController()
  const serving = new Map<Socket, Promise<void>>()
  let listener: Listener | null = null

  async function serve(socket: Socket): Promise<void> {
    // systemd goes away in the midst of what is too much.
    socket.on('error', () => undefined)
    const closed = new Promise((resolve) => socket.once('close', resolve))
    const peer = peers.of(socket)
    if (peer?.isPrivileged !== true) return void socket.destroy()
    const credential = credentialOf(peers.addressOf(socket) ?? '')
    // systemd has ended its side already. Unread, that end would keep the connection open.
    socket.resume()
    const reply = await replies.token({ waitSeconds: MAX_WAIT_SECONDS }, stop)
    if ('fault' in reply) refuse(socket, { peer, credential, fault: reply.fault })
    else {
      const format = FORMATS[extname(credential?.id ?? '')] ?? 'raw'
      socket.end(textOf[format](JSON.parse(reply.value.json) as TokenResult))
      audit.recordRead({ peer, lastRead: null }, 'credential', credential?.unit ?? null)
    }
    await closed
  }

  function refuse(
    socket: Socket,
    { peer, credential, fault }: { peer: Peer; credential: Credential | null; fault: Fault },
  ): void {
    socket.end(Buffer.alloc(TOO_MUCH_BYTES, ' '))
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
    const served = serve(socket)
      .catch((error: unknown) => {
        logFault('A connection failed by an internal error', error)
        socket.end(Buffer.alloc(TOO_MUCH_BYTES, ' '))
      })
      .finally(() => serving.delete(socket))
    serving.set(socket, served)
  }

  function logFault(sentence: string, error: unknown): void {
    const fields = { transport: 'credential', detail: errorMessage(error) }
    log('error', sentence, { event: 'connection-fault', ...fields })
  }

  return {
    /** Throws UserError (78) if a descriptor is no listening socket. */
    async open(): Promise<void> {
      listener = await adoptListeners(fds, {
        createServer: () => createServer({ allowHalfOpen: true }, onConnection),
        onAcceptError: (error) => logFault('A connection could not be accepted', error),
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
      await raceAbort(Promise.all(serving.values()), AbortSignal.timeout(STOP_MS))
      for (const socket of serving.keys()) socket.destroy()
    },
  }
}

/** From `\0HEX/unit/UNIT/ID` (systemd.exec(5), LoadCredential=); null: another program of root's connects. */
function credentialOf(address: string): Credential | null {
  const start = address.indexOf(BEFORE_UNIT) + BEFORE_UNIT.length
  const end = address.lastIndexOf('/')
  if (start < BEFORE_UNIT.length || end < start) return null
  return { unit: address.slice(start, end), id: address.slice(end + 1) }
}
