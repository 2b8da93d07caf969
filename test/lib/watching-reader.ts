// Reads a file over and over until it gets a signal, and prints what it saw that was not whole.
import { closeSync, fstatSync, openSync, readFileSync } from 'node:fs'

const [path = ''] = process.argv.slice(2)
let reads = 0
const faults = new Set<string>()
let isEnded = false
process.on('message', () => {
  isEnded = true
})

function look(): void {
  const fd = openSync(path, 'r')
  const mode = fstatSync(fd).mode & 0o7777
  const content = readFileSync(fd, 'utf8')
  closeSync(fd)
  reads += 1
  const [number = '', body = ''] = content.split(' ')
  if (mode !== 0o640) faults.add(`mode ${mode.toString(8)}`)
  if (body !== number.repeat(200)) faults.add(`torn: ${content.slice(0, 40)}`)
}

function lookOn(): void {
  for (let looks = 0; looks < 200; looks += 1) look()
  if (!isEnded) {
    setImmediate(lookOn)
    return
  }
  process.send?.({ reads, faults: [...faults] }, () => {
    process.disconnect()
  })
}

process.send?.('ready')
lookOn()
