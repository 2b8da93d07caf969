// The memory that any program in Node needs after one https request.
import { readFileSync } from 'node:fs'
import { request } from 'node:https'

const [url, caFile] = process.argv.slice(2)
request(
  `${url}/token/external/jwt`,
  { method: 'POST', ca: readFileSync(caFile), agent: false },
  (response) => {
    response.resume().on('end', () => process.stdout.write('asked\n'))
  },
).end('{}')
setInterval(() => undefined, 60_000)
