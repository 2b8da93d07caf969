// The asynchronous calls of node:fs as promises. They give descriptors, through which /proc/self/fd reaches a
// file whatever happens to its name; `node:fs/promises` gives objects, which close a descriptor when they are
// collected.
import * as node from 'node:fs'
import { promisify } from 'node:util'

/** Of a mode: permissions, set-id bits and the sticky bit. */
export const MODE_BITS = 0o7777
/** What is made in a directory with this bit belongs to its group. */
export const SETGID = 0o2000

export const fs = {
  close: promisify(node.close),
  fchmod: promisify(node.fchmod),
  fchown: promisify(node.fchown),
  fstat: promisify(node.fstat),
  fsync: promisify(node.fsync),
  lstat: promisify(node.lstat),
  mkdir: promisify(node.mkdir),
  open: promisify(node.open),
  readFile: promisify(node.readFile),
  rename: promisify(node.rename),
  unlink: promisify(node.unlink),
  writeFile: promisify(node.writeFile),
}
