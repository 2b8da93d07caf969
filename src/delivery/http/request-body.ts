// Bodies of requests: short ones, and only where one belongs.
import type { IncomingMessage } from 'node:http'
import { readLimited } from '../../lib/read-limited.ts'
import type { Connection } from '../connections/connection.ts'
import { headerOf } from './responses.ts'

export const MAX_BODY_BYTES = 4096

/** Reports whether the head announces a body. */
export function hasBody(req: IncomingMessage): boolean {
  const length = headerOf(req, 'content-length')
  return (length !== undefined && Number(length) !== 0) || headerOf(req, 'transfer-encoding') !== undefined
}

/** Resolves with the body, or with null where it is too long; the rest of it is then not read. */
export async function readBody(req: IncomingMessage, connection: Connection): Promise<string | null> {
  const announced = Number(headerOf(req, 'content-length') ?? 0)
  if (announced > MAX_BODY_BYTES) return null
  try {
    const stream = req.iterator({ destroyOnReturn: false }) as AsyncIterable<Buffer>
    const body = await readLimited(stream, { maxBytes: MAX_BODY_BYTES })
    return body?.toString('utf8') ?? null
  } catch (error) {
    // The client went away in the middle of it; no answer can reach it.
    if (!connection.socket.destroyed) throw error
    return null
  }
}
