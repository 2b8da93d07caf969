// `ipc.sock`: the daemon's replies over node-ipc.
import type { Socket } from 'node:net'
import { MAX_FRAME_BYTES } from '../protocol.ts'
import { createDoor } from './door.ts'
import type { DropReason } from './guest.ts'
import { IpcConnection, type IpcHouse } from './ipc-connection.ts'
import { createIpcFraming } from './ipc-framing.ts'
import { createIpcRequests, faultFrame } from './ipc-requests.ts'
import { createRegister } from './register.ts'
import { createTokenFrames } from './token-frame.ts'
import { noRejects, type DeliveryServer, type ServerOptions } from './server.ts'

export function createIpcServer(options: ServerOptions): DeliveryServer {
  const { replies, holdings } = options
  const connections = createRegister<Socket, IpcConnection>()
  const rejects = noRejects()
  const server = createIpcFraming({
    path: options.socket.path,
    onViolation: (socket) => onViolation(socket),
  })
  const door = createDoor(
    {
      transport: 'ipc',
      welcome(guest) {
        connections.set(guest.socket, new IpcConnection(guest, house))
      },
      lastWords: (reason) => lastWords[reason] ?? null,
      beforeLook: () => undefined,
      beforeLastWords: (guest) => connections.get(guest.socket)?.flush(),
      finish: (guest) => connections.get(guest.socket)?.finish(),
      forget(guest) {
        connections.get(guest.socket)?.forget()
        connections.delete(guest.socket)
      },
    },
    options,
  )
  const requests = createIpcRequests({ door, replies, onReject: (verdict) => void (rejects[verdict] += 1) })

  const frames = createTokenFrames()
  const house: IpcHouse = { server, room: door, requests, holdings, frames, config: door.config }

  function onViolation(socket: Socket): void {
    const connection = connections.get(socket)
    if (connection !== undefined) door.drop(connection.guest, 'broken-framing')
  }
  replies.onChange(() => {
    for (const connection of connections.values) connection.tellChange()
  })

  return {
    run: door.run,
    reconfigure: door.reconfigure,
    look: door.look,
    counts: () => ({ ...door.counts(), rejects: { ...rejects } }),
  }
}

const lastWords: Partial<Record<DropReason, string>> = {
  'too-many-connections': faultFrame(
    'busy',
    'Too many connections: close some, or raise `maxConnections` and `maxConnectionsPerUser`',
  ),
  'broken-framing': faultFrame(
    'bad-request',
    `A frame is one JSON object of at most ${MAX_FRAME_BYTES} bytes and a form feed`,
  ),
  // These were told with the id of the request.
  'too-many-requests': '',
  'too-many-subscriptions': '',
}
