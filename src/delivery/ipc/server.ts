// `ipc.sock`: the operations over node-ipc's frames.
import { createConnectionServer } from '../connections/server.ts'
import { createOperations } from '../operations.ts'
import type { DeliveryServer, ServerOptions } from '../servers.ts'
import { IpcConnection } from './connection.ts'

export function createIpcServer(options: ServerOptions): DeliveryServer {
  const operations = createOperations({ ...options, transport: 'ipc' })
  const server = createConnectionServer(
    { ...options, transport: 'ipc' },
    (connection) => new IpcConnection(connection, operations),
  )
  return { ...server, counts: () => ({ ...server.counts(), ...operations.counts() }) }
}
