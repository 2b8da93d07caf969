// Loaded before the program: fsync in the directory HANG_DIRECTORY blocks a thread, as a disk that hangs does, while HANG_FLAG is there.
import { existsSync, readlinkSync } from 'node:fs'
import { open } from 'node:fs/promises'

const { HANG_DIRECTORY: directory, HANG_FLAG: flag, HANG_FIFO: fifo } = process.env
const file = await open('/dev/null')
const prototype = Object.getPrototypeOf(file)
await file.close()
const { sync } = prototype
prototype.sync = async function hang() {
  const isThere = readlinkSync(`/proc/self/fd/${this.fd}`).startsWith(directory)
  // Opening a FIFO blocks until its other end is opened.
  if (isThere && existsSync(flag)) await open(fifo, 'r')
  await sync.call(this)
}
