// A server that speaks enough of Redis' protocol to be connected to, and then answers nonsense.
import { createServer, type Socket } from 'node:net'
import { join } from 'node:path'
import { onTestFinished } from 'vitest'
import { tempDirectory } from './temp-directory.ts'

/** `answer` writes what it likes for each script and subscription; to connect is answered well. */
export async function startNonsenseRedis(answer: (socket: Socket, command: string) => void) {
  const path = join(await tempDirectory(), 'redis.sock')
  /** Connections that were ever opened, and commands that came. */
  const counts = { connections: 0, commands: 0 }
  const sockets = new Set<Socket>()
  const server = createServer((socket) => {
    counts.connections += 1
    sockets.add(socket)
    socket.on('error', () => undefined)
    socket.on('close', () => sockets.delete(socket))
    socket.on('data', (chunk) => {
      for (const [, name = ''] of chunk.toString().matchAll(/\*\d+\r\n\$\d+\r\n([a-z]+)\r\n/gi)) {
        counts.commands += 1
        const command = name.toLowerCase()
        if (command === 'info') socket.write('$13\r\nrole:master\r\n\r\n')
        else if (command === 'client' || command === 'select') socket.write('+OK\r\n')
        else if (command === 'ping') socket.write('+PONG\r\n')
        else answer(socket, command)
      }
    })
  })
  await new Promise<void>((resolve) => server.listen(path, resolve))
  onTestFinished(() => {
    server.close()
    for (const socket of sockets) socket.destroy()
  })
  return { address: { path }, counts }
}
