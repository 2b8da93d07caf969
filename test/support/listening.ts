// A server of the test's own, until the test ends.
import { once } from 'node:events'
import type { AddressInfo, Server } from 'node:net'
import { onTestFinished } from 'vitest'

/** Listens at the path, else at a free port of loopback, which it gives. */
export async function listening(server: Server, path?: string): Promise<number> {
  onTestFinished(() => void server.close())
  if (path === undefined) server.listen(0, '127.0.0.1')
  else server.listen(path)
  await once(server, 'listening')
  return path === undefined ? (server.address() as AddressInfo).port : 0
}
