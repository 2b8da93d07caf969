// Preloaded into the bundled program: says on stderr which of its files it loads, and if V8 takes the code cache of each.
const path = require('node:path')
const vm = require('node:vm')

vm.Script = class extends vm.Script {
  constructor(source, options) {
    super(source, options)
    const cache = { undefined: 'no cache', true: 'rejected', false: 'accepted' }[this.cachedDataRejected]
    process.stderr.write(`loaded ./${path.basename(options.filename)} ${cache}\n`)
  }
}
