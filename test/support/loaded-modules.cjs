// Preloaded into the daemon: at SIGUSR1, which is nothing to it, says on stderr which modules of Node it has loaded.
process.on('SIGUSR1', () => {
  const names = process.moduleLoadList.map((entry) => entry.replace('NativeModule ', ''))
  process.stderr.write(`loaded: ${names.join(' ')} .\n`)
})
