// A listening socket that stays where it belongs: made anew where somebody removed it, moved where the configuration says so.
import { errorCode, errorMessage, UserError } from '../lib/error.ts'
import type { Log } from '../lib/log.ts'
import { listenAt, type Callers, type Place } from './listen.ts'

export interface Standing {
  /** Makes the socket anew where it is gone. Never fails: what speaks against it is told in the log, once. */
  look(log: Log): Promise<void>
  /** Listens elsewhere, or with another mode and group; connections live on. Throws UserError, and all stays as it was. */
  move(next: Place): Promise<void>
  /** Accepts no more, and removes the socket. Connections live on. */
  close(): void
}

/** Listens at a path as `listenAt` does, and throws as it does. */
export async function standAt(first: Place, callers: Callers): Promise<Standing> {
  let place = first
  let listening = await listenAt(place, callers)
  let isClosed = false
  let problem = ''
  let last = Promise.resolve()

  /** One step at a time: the next finds the socket as the one before left it. */
  function inTurn(step: () => Promise<void>): Promise<void> {
    const done = last.then(step)
    last = done.catch(() => undefined)
    return done
  }

  async function take(next: Place): Promise<void> {
    const taken = await listenAt(next, callers)
    if (isClosed) return taken.close()
    listening.close()
    listening = taken
    place = next
  }

  async function restore(log: Log): Promise<void> {
    const { path } = place
    try {
      await take(place)
      problem = ''
      log('warning', 'Restored a socket that was removed behind our back', { event: 'socket-restored', path })
    } catch (error) {
      if (!(error instanceof UserError) && errorCode(error) === undefined) throw error
      const message = errorMessage(error)
      if (message !== problem) {
        log('error', 'A socket cannot be kept', { event: 'socket-error', path, error: message })
      }
      problem = message
    }
  }

  return {
    look: (log) => inTurn(async () => (isClosed || listening.isThere() ? undefined : restore(log))),
    move: (next) =>
      inTurn(async () => {
        if (next.path === place.path && listening.isThere()) listening.adjust(next)
        else await take(next)
        place = next
      }),
    close() {
      isClosed = true
      listening.close()
    },
  }
}

/** The same for sockets that were handed over: they are never ours to restore or to move. */
export function standing(listening: readonly { close(): void }[]): Standing {
  return {
    look: () => Promise.resolve(),
    move: () => Promise.resolve(),
    close() {
      for (const one of listening) one.close()
    },
  }
}
