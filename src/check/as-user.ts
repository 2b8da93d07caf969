// Work with the rights of another user, so that the kernel itself decides, and the question of a client at a socket.
import { request } from 'node:http'
import { TokenClientError } from '../client/index.ts'
import { nameOf } from '../host/ids.ts'
import { errorCode } from '../lib/error.ts'
import { openClient } from '../terminal/ask.ts'

/** The longest wait for an answer: a daemon that serves answers within milliseconds. */
const ANSWER_MS = 5_000
/** Below the id that stands for unknown users. */
const LAST_FREE_ID = 65_533

export interface Identity {
  readonly uid: number
  readonly groups: readonly [gid: number, ...further: number[]]
}

/** A user that is nobody else's, with this one group. */
export function memberOf(gid: number): Identity {
  let uid = LAST_FREE_ID
  while (nameOf('user', uid) !== String(uid)) uid -= 1
  return { uid, groups: [gid] }
}

/** Does the work as this user; as the present one where that is not root, or nobody is named. No two at a time. */
export async function asUser<T>(who: Identity | undefined, work: () => Promise<T>): Promise<T> {
  if (who === undefined || process.geteuid!() !== 0) return work()
  const before = { groups: process.getgroups!(), gid: process.getegid!() }
  process.setgroups!([...who.groups])
  process.setegid!(who.groups[0])
  process.seteuid!(who.uid)
  try {
    return await work()
  } finally {
    process.seteuid!(0)
    process.setegid!(before.gid)
    process.setgroups!(before.groups)
  }
}

/** Why nobody answers at the socket, as a code; null: a daemon answers there, even if `allow` denies the token. */
export async function whyUnanswered(name: 'ipc' | 'http', path: string): Promise<string | null> {
  return name === 'ipc' ? askIpc(path) : askHttp(path)
}

async function askIpc(socketPath: string): Promise<string | null> {
  using client = openClient({ options: { socket: socketPath } })
  try {
    await client.status({ signal: AbortSignal.timeout(ANSWER_MS) })
    return null
  } catch (error) {
    if (!(error instanceof TokenClientError)) return 'timeout'
    const code = errorCode(error.cause) ?? error.code
    return code === 'denied' ? null : code
  }
}

async function askHttp(socketPath: string): Promise<string | null> {
  return new Promise((resolve) => {
    const asked = request({ socketPath, path: '/v1/status', timeout: ANSWER_MS, agent: false })
    asked.on('response', (response) => {
      response.resume()
      resolve([200, 403].includes(response.statusCode ?? 0) ? null : `HTTP ${response.statusCode}`)
    })
    asked.on('timeout', () => asked.destroy(Object.assign(new Error(), { code: 'timeout' })))
    asked.on('error', (error) => resolve(errorCode(error) ?? 'daemon-unreachable'))
    asked.end()
  })
}
