import ipc from 'node-ipc'

// It connects again when the connection is lost, each half second, ten times.
Object.assign(ipc.config, { silent: true, retry: 500, maxRetries: 10 })

function accessToken() {
  return new Promise((resolve, reject) => {
    const end = (settle) => (value) => {
      clearTimeout(timer)
      ipc.disconnect('kyc-tokend')
      settle(value)
    }
    const fail = (why) => end(reject)(new Error(`kyc-tokend: ${why}`))
    const timer = setTimeout(() => fail('no answer within 30 s'), 30_000)
    ipc.connectTo('kyc-tokend', '/run/kyc-tokend/ipc.sock', () => {
      const daemon = ipc.of['kyc-tokend']
      daemon.on('connect', () => daemon.emit('token.get', { id: '1', waitSeconds: 10 }))
      daemon.on('token.result', end(resolve))
      daemon.on('fault', ({ code, message }) => fail(`${code}: ${message}`))
      daemon.on('destroy', () => fail('no daemon answers'))
    })
  })
}

const { accessToken: token, expiresAt } = await accessToken()
process.stdout.write(`${token.length} characters, good until ${expiresAt}\n`)
