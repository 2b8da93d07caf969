// Preloaded into a program: calls about files below $STALL_BELOW wait while the FIFO $STALL_WHILE is there, each in
// the thread that would wait for a disk; $STALL_WHILE.met says that one does.
const fs = require('node:fs')
const { STALL_BELOW = '', STALL_WHILE = '' } = process.env
const { existsSync, mkdirSync, open, openSync, readlinkSync } = fs

/** Many paths are /proc/self/fd/N/name: the directory is what N leads to. */
function isBelow(file) {
  const fd = typeof file === 'number' ? String(file) : /^\/proc\/self\/fd\/(\d+)/.exec(String(file))?.[1]
  const path = fd === undefined ? String(file) : readlinkSync(`/proc/self/fd/${fd}`)
  return path.startsWith(STALL_BELOW)
}

function isStalled([file, other]) {
  // The second name is that which a rename makes.
  const names = typeof other === 'string' ? [file, other] : [file]
  if (!existsSync(STALL_WHILE) || !names.some(isBelow)) return false
  mkdirSync(`${STALL_WHILE}.met`, { recursive: true })
  return true
}

for (const [name, original] of Object.entries(fs)) {
  if (typeof original !== 'function' || !(`${name}Sync` in fs || name.endsWith('Sync'))) continue
  // A FIFO is opened once somebody writes to it.
  fs[name] = name.endsWith('Sync')
    ? (...args) => {
        if (isStalled(args)) openSync(STALL_WHILE, 'r')
        return original(...args)
      }
    : (...args) => (isStalled(args) ? open(STALL_WHILE, 'r', () => original(...args)) : original(...args))
}

for (const [name, original] of Object.entries(fs.promises)) {
  if (typeof original !== 'function') continue
  fs.promises[name] = async (...args) => {
    if (isStalled(args)) await new Promise((resolve) => open(STALL_WHILE, 'r', resolve))
    return original(...args)
  }
}
