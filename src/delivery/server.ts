// What the servers of the daemon have in common, whatever is spoken on them.
import type { SocketConfig } from '../config/config.ts'
import type { RejectVerdict } from '../protocol.ts'
import type { DoorOptions, ServerCounts } from './door.ts'
import type { Replies } from './replies.ts'

export interface DeliveryServer {
  /**
   * Listens until the signal is aborted; then answers under way are finished (within 3 s) and the socket removed.
   * Throws UserError: 69 where somebody answers at the path, 78 where the socket cannot be made.
   */
  run(signal: AbortSignal, options: { onListening: () => void }): Promise<void>
  /** Other limits and another `allow` at once; another path, mode or group too, and connections live on. Throws UserError. */
  reconfigure(socket: SocketConfig): Promise<void>
  /** Makes the socket anew where somebody removed it. Never fails: what speaks against it is told in the log. */
  look(): Promise<void>
  counts(): ServerCounts & { readonly rejects: Readonly<Record<RejectVerdict, number>> }
}

export type ServerOptions = DoorOptions & { readonly replies: Replies }

/** Reports of clients by verdict, at the start. */
export function noRejects(): Record<RejectVerdict, number> {
  return { replaced: 0, refreshing: 0, held: 0, unchanged: 0, refused: 0 }
}
