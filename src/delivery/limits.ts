// The most that one connection may hold, and how long it may be idle. The daemon's memory is bounded by these
// times `maxConnections`: nothing is measured to be bounded.

/** So much is read at once from `ipc.sock`, into memory that all connections share. */
export const READ_BYTES = 4 * 1024
/** Answers go out together once they have so many bytes; with as many unsent, no more are given. */
export const WRITE_BYTES = 16 * 1024
/** The kernel keeps 37 KiB at most for a peer that does not read; 218 KiB by its own default. */
export const SEND_BUFFER_BYTES = 16 * 1024
/** Work in one turn of the event loop: the rest comes in later turns, and others are served meanwhile. */
export const FRAMES_IN_A_TURN = 4
export const ACCEPTED_IN_A_TURN = 32
/** Connections that are not accepted yet. */
export const BACKLOG = 4_096

/** Requests of a connection of `ipc.sock` that wait: with so many nothing more is read from it. */
export const MAX_WAITING = 16
export const MAX_SUBSCRIPTIONS = 16
/** Requests of a connection of `http.sock` that are not answered to their end. */
export const MAX_UNANSWERED = 2
export const MAX_HEAD_BYTES = 8 * 1024
export const MAX_HEAD_FIELDS = 64
/** Body of an HTTP request: a report of the longest token fits. */
export const MAX_BODY_BYTES = 32 * 1024

/** Connections of peers that `allow` excludes, while their first request is awaited. */
export const MAX_DENIED = 64
/** A connection whose peer does not read ends after this time, at the next maintenance. */
export const STALLED_MS = 30_000
/** All that was received when a stop begins is answered within this time. */
export const STOP_MS = 3_500

/** Connections that the daemon ended, by reason. */
export const nothingDropped = {
  'too-many-connections': 0,
  'too-many-requests': 0,
  'too-many-subscriptions': 0,
  denied: 0,
  stalled: 0,
  idle: 0,
  'broken-framing': 0,
  'fault-of-ours': 0,
}
export type DropReason = keyof typeof nothingDropped
