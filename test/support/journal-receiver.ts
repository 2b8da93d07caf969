// A receiver of the journal's native protocol, played by Python: Node has no Unix sockets for datagrams.
import { spawn } from 'node:child_process'
import { once } from 'node:events'
import { createInterface } from 'node:readline'
import { onTestFinished } from 'vitest'

/** Binds the path, says so, and reads as soon as it gets a line: one line of base64 for each datagram. */
const PROGRAM = `
import base64, os, socket, sys
path = sys.argv[1]
if os.path.exists(path): os.unlink(path)
receiver = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
receiver.bind(path)
print('bound', flush=True)
if sys.stdin.readline() == '': sys.exit()
while True: print(base64.b64encode(receiver.recv(1 << 20)).decode(), flush=True)
`

/** The fields of an entry: each value of each name, in the order of the datagram. */
export type Entry = Readonly<Record<string, readonly string[]>>

export async function receiveJournal(path: string, { isReading = true } = {}) {
  const program = spawn('python3', ['-c', PROGRAM, path], { stdio: ['pipe', 'pipe', 'inherit'] })
  const closed = once(program, 'close')
  const stop = async (): Promise<void> => {
    program.kill()
    await closed
  }
  onTestFinished(stop)
  const entries: Entry[] = []
  const lines = createInterface({ input: program.stdout })
  await once(lines, 'line')
  lines.on('line', (line) => entries.push(parse(Buffer.from(line, 'base64'))))
  const read = (): void => void program.stdin.write('read\n')
  if (isReading) read()
  return { entries, read, stop }
}

function parse(datagram: Buffer): Entry {
  const fields: Record<string, string[]> = {}
  for (let at = 0; at < datagram.length;) {
    const lineEnd = datagram.indexOf('\n', at)
    const line = datagram.toString('utf8', at, lineEnd)
    const [name = '', ...rest] = line.split('=')
    let end = lineEnd
    let value = rest.join('=')
    if (rest.length === 0) {
      // `NAME\n`, the length in 8 bytes, the value.
      const start = lineEnd + 9
      end = start + Number(datagram.readBigUInt64LE(lineEnd + 1))
      value = datagram.toString('utf8', start, end)
    }
    if (datagram[end] !== 10) throw new Error(`No end of the field ${name}`)
    fields[name] = [...(fields[name] ?? []), value]
    at = end + 1
  }
  return fields
}
