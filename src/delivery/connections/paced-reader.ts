// Reading in turns: a connection is given as many requests as fit in one turn, and the rest waits unparsed.
import type { Socket } from 'node:net'
import { unsentBytes, type Connection } from './connection.ts'
import type { ConnectionServer } from './server.ts'

/** As much is parsed at once; more waits for its turn, since long requests of many connections keep the loop busy. */
const AT_ONCE_BYTES = 1024

/** The part of a handler that both protocols share. A class, because there may be ten thousand of them, idle. */
export abstract class PacedReader {
  protected readonly connection: Connection
  protected readonly server: ConnectionServer
  protected readonly socket: Socket
  /** Received and not parsed yet, from `unreadAt` on; nothing more is read from the socket meanwhile. */
  private unread: Buffer | null = null
  private unreadAt = 0
  private isTurnDue = false

  constructor(connection: Connection, server: ConnectionServer) {
    this.connection = connection
    this.server = server
    this.socket = connection.socket
  }

  /** Parses what begins there, one request or a part of it, and returns where it ends. */
  protected abstract parseNext(bytes: Buffer, at: number): number
  /** True while another request may be parsed; otherwise `readOn` is called when that changes. */
  protected abstract mayParse(): boolean
  /** Called after each turn. */
  protected abstract afterTurn(): void
  /** Calls of `parseNext` in one turn. */
  protected abstract readonly perTurn: number

  protected get isUnread(): boolean {
    return this.unread !== null
  }

  /** Bytes of answers that the kernel has not taken yet. */
  protected get unsentBytes(): number {
    return unsentBytes(this.connection)
  }

  protected get unreadBytes(): number {
    return this.unread === null ? 0 : this.unread.length
  }

  /** The buffer may be written to again after the call. */
  protected take(bytes: Buffer): void {
    if (this.unread !== null) throw new Error('A paused socket was read from')
    if (bytes.length <= AT_ONCE_BYTES) return this.read(bytes, 0)
    this.keepUnread(bytes, 0)
    this.server.update(this.connection)
    this.readOn()
  }

  /** Goes on with what is unread, in the next turn. */
  protected readOn(): void {
    if (this.unread === null || this.isTurnDue || !this.mayParse()) return
    this.isTurnDue = true
    this.server.whenItsTurn(this.connection, () => {
      this.isTurnDue = false
      if (this.unread !== null) this.read(this.unread, this.unreadAt)
    })
  }

  protected forgetUnread(): void {
    this.unread = null
  }

  private read(bytes: Buffer, from: number): void {
    let at = from
    for (let left = this.perTurn; left > 0 && at < bytes.length; left -= 1) {
      if (this.connection.isClosing || !this.mayParse()) break
      at = this.parseNext(bytes, at)
    }
    if (this.connection.isClosing) return
    this.keepUnread(bytes, at)
    this.afterTurn()
    this.server.update(this.connection)
    this.readOn()
  }

  private keepUnread(bytes: Buffer, at: number): void {
    if (at === bytes.length) {
      if (this.unread === null) return
      this.unread = null
      this.socket.resume()
    } else if (bytes === this.unread) {
      this.unreadAt = at
    } else {
      this.socket.pause()
      // Copied: the buffer is shared, and a slice would keep all of it.
      this.unread = Buffer.allocUnsafeSlow(bytes.length - at)
      this.unreadAt = 0
      bytes.copy(this.unread, 0, at)
    }
  }
}
