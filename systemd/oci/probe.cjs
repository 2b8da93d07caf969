#!/usr/lib/kyc-tokend/node
// /usr/bin/kyc-tokend-probe of the image: `kyc-tokend-probe healthz|readyz` asks the daemon's HTTP socket, and ends with
// status 0 if it answers 200, else with 1 and the reason.
const { get } = require('node:http')

const check = process.argv[2] ?? 'healthz'
const socketPath = `${process.env.RUNTIME_DIRECTORY ?? '/run/kyc-tokend'}/http.sock`
const fail = (reason) => {
  process.stderr.write(`${check}: ${reason}\n`)
  process.exit(1)
}
get({ socketPath, path: `/${check}`, timeout: 5_000 }, (response) => {
  if (response.statusCode === 200) process.exit(0)
  let body = ''
  response.on('data', (chunk) => (body += chunk)).on('end', () => fail(`${response.statusCode} ${body}`))
})
  .on('timeout', () => fail('no answer within 5 s'))
  .on('error', ({ message }) => fail(message))
