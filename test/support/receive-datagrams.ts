// A receiver of Unix datagrams, as systemd is one. Node has none, so python3 listens and prints what came.
import { spawn } from 'node:child_process'
import { once } from 'node:events'
import { createInterface } from 'node:readline'

const program = `
import json, socket, sys
receiver = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
receiver.bind(sys.argv[1].replace('@', chr(0), 1) if sys.argv[1].startswith('@') else sys.argv[1])
print(json.dumps(None), flush=True)
while sys.stdin.readline():
    print(json.dumps(receiver.recv(65536).decode()), flush=True)
`

/** Listens at a path, or at an abstract name (`@…`). */
export async function receiveDatagrams(path: string) {
  const child = spawn('python3', ['-c', program, path], { stdio: ['pipe', 'pipe', 'inherit'] })
  const lines = createInterface({ input: child.stdout })
  await once(lines, 'line')
  return {
    /** The next datagram; waits for it. */
    next: async (): Promise<string> => {
      const line = once(lines, 'line')
      child.stdin.write('\n')
      return JSON.parse(String((await line)[0])) as string
    },
    stop: () => child.kill(),
  }
}
