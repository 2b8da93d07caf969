// Preloaded into the program: sends it $SIGNAL when it loads its $SIGNAL_AT-th module, the first being 1.
const Module = require('node:module')
const { SIGNAL, SIGNAL_AT } = process.env
const LOAD = '_load'
const load = Module[LOAD]
let count = 0
Module[LOAD] = function loadAndSignal(request, parent, ...rest) {
  if (parent?.filename.endsWith('cli.cjs')) {
    count += 1
    if (count === Number(SIGNAL_AT)) process.kill(process.pid, SIGNAL)
  }
  return Reflect.apply(load, this, [request, parent, ...rest])
}
