// Which socket a client connects to: the one that was named, or the first that is there.
import { statSync } from 'node:fs'
import { errorCode } from './error.ts'
import { socketCandidates, type Asker } from './places.ts'

/** Names the socket for client commands and the client library. */
export const SOCKET_VARIABLE = 'KYC_TOKEND_SOCKET'

/**
 * The path of the daemon's socket: `named`, `$KYC_TOKEND_SOCKET`, or the first candidate that is there; undefined
 * where none is. One that is there but may not be looked at counts: it is not passed over in silence.
 */
export function findSocket(asker: Asker, named?: string): string | undefined {
  const told = named ?? asker.env[SOCKET_VARIABLE]
  if (told !== undefined && told !== '') return told
  return socketCandidates(asker).find(isThere)
}

/** Where it is looked for, for people. */
export function socketPlaces(asker: Asker): string {
  return socketCandidates(asker).join(' and ')
}

/** This process, as one who looks for a socket. */
export function thisAsker(): Asker {
  return { env: process.env, uid: process.geteuid?.() ?? -1 }
}

function isThere(path: string): boolean {
  try {
    return statSync(path, { throwIfNoEntry: false }) !== undefined
  } catch (error) {
    return errorCode(error) !== 'ENOTDIR'
  }
}
