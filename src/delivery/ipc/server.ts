// `ipc.sock`: the operations over node-ipc's wire.
import { writeDirectly, writeThroughStream } from '../connections/direct-write.ts'
import { createConnectionServer } from '../connections/server.ts'
import type { DeliveryServer, ServerOptions } from '../delivery-server.ts'
import { createOperations } from '../operations.ts'
import { IpcConnection, type IpcContext } from './connection.ts'
import { createTokenFrames } from './frames.ts'
import { createIpcFraming } from './framing.ts'

export function createIpcServer(options: ServerOptions): DeliveryServer {
  const { isDirect = true } = options
  const operations = createOperations({ ...options, transport: 'ipc' })
  const server = createConnectionServer({
    ...options,
    transport: 'ipc',
    isDirect,
    open: (connection) => new IpcConnection(connection, context),
  })
  const framing = createIpcFraming(options.socket)
  const send = isDirect ? writeDirectly : writeThroughStream
  const context: IpcContext = { framing, server, operations, tokenFrame: createTokenFrames(), isDirect, send }
  const { run, reconfigure, repair } = server
  return { run, reconfigure, repair, counts: () => ({ ...server.statistics(), ...operations.counts() }) }
}
