// Raw bytes to `http.sock`, and what comes back.
import { connect } from 'node:net'
import { onTestFinished } from 'vitest'

/** Sends bytes, one a character; gives what comes until the connection ends or the text matches. */
export function exchange(path: string, text: string, { until = /$^/ } = {}): Promise<string> {
  return new Promise((resolve) => {
    const socket = connect(path)
    onTestFinished(() => void socket.destroy())
    const received: string[] = []
    let tail = ''
    socket.setEncoding('utf8')
    socket.on('data', (chunk: string) => {
      received.push(chunk)
      tail = (tail + chunk).slice(-1_000)
      if (until.test(tail)) resolve(received.join(''))
    })
    socket.on('error', () => undefined)
    socket.on('close', () => resolve(received.join('')))
    socket.write(text, 'latin1')
  })
}
