// Preloaded into the daemon: at SIGUSR1, which is nothing to it, writes what is in its memory to the file that the environment names.
const { writeHeapSnapshot } = require('node:v8')

process.on('SIGUSR1', () => {
  process.stderr.write(`written ${writeHeapSnapshot(process.env.HEAP_SNAPSHOT)}\n`)
})
