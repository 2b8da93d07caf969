// A client of a daemon whose answers the test writes.
import { once } from 'node:events'
import { createServer, type Socket } from 'node:net'
import { join } from 'node:path'
import { expect, onTestFinished, vi } from 'vitest'
import { TokenClient, TokenClientError, type TokenClientOptions } from '../../src/client/index.ts'
import { createFakeTokenClient } from '../../src/client/testing.ts'
import { listening } from './listening.ts'
import type { ArrivedRequest, ScriptedAnswer } from './service.ts'
import { tempDirectory } from './temp-directory.ts'

interface AskedFrame {
  readonly type: string
  readonly data: Record<string, unknown>
}
interface Asking extends AskedFrame {
  /** Sends a frame that repeats the id. */
  readonly answer: (type: string, data: object) => void
  readonly socket: Socket
}
export type ScriptedDaemon = Awaited<ReturnType<typeof daemonWith>>

/** The fields of a token result, for this token. */
export function tokenFields(accessToken: string, fields: object = {}): Record<string, unknown> {
  const times = {
    obtainedAt: '2030-01-01T00:00:00.000Z',
    refreshAt: '2030-01-01T00:40:00.000Z',
    expiresAt: '2030-01-01T01:00:00.000Z',
  }
  return { ...createFakeTokenClient().rotate(accessToken), ...times, generation: 1, ...fields }
}

/** A daemon until the test ends, started already. `script` is called with each request. */
export async function daemonWith(script: (asking: Asking) => void, given?: string) {
  const path = given ?? join(await tempDirectory(), 'ipc.sock')
  const asked: AskedFrame[] = []
  const sockets = new Set<Socket>()
  const subscribers = new Map<Socket, unknown>()
  let made = 0
  const sendTo = (socket: Socket, type: string, data: object): void =>
    void socket.write(`${JSON.stringify({ type, data })}\f`)
  const server = createServer((socket) => {
    made += 1
    sockets.add(socket)
    let rest = ''
    socket.on('error', () => undefined)
    socket.on('close', () => {
      sockets.delete(socket)
      subscribers.delete(socket)
    })
    socket.on('data', (chunk) => {
      const frames = (rest + chunk.toString()).split('\f')
      rest = frames.pop() ?? ''
      for (const text of frames) {
        const frame = JSON.parse(text) as AskedFrame
        const { id } = frame.data
        asked.push(frame)
        if (frame.type === 'token.subscribe') subscribers.set(socket, id)
        script({ ...frame, socket, answer: (type, data) => sendTo(socket, type, { id, ...data }) })
      }
    })
  })
  const start = () => listening(server, path)
  /** Cuts all connections and takes the socket away; `start` makes it again. */
  async function stop(): Promise<void> {
    for (const socket of sockets) socket.destroy()
    if (server.listening) await once(server.close(), 'close')
  }
  onTestFinished(stop)
  await start()
  return {
    path,
    /** The requests, oldest first. */
    asked: asked as readonly AskedFrame[],
    /** Connections that were ever made, and that are open now. */
    connections: () => ({ made, open: sockets.size }),
    /** Sends to every subscriber. */
    publish: (type: string, data: object): void => {
      for (const [socket, id] of subscribers) sendTo(socket, type, { id, ...data })
    },
    /** Ends all connections once what was written is sent. */
    cutAll: (): void => {
      for (const socket of sockets) socket.end()
    },
    start,
    stop,
  }
}

/** Gives `token-1` to every `token.get`. */
export const generous = ({ type, answer }: Asking): void => {
  if (type === 'token.get' || type === 'token.subscribe') answer('token.result', tokenFields('token-1'))
}
export function clientOf(daemon: { path: string }, options: TokenClientOptions = {}): TokenClient {
  const client = new TokenClient({ socketPath: daemon.path, ...options })
  onTestFinished(() => client.close())
  return client
}
export const codeOf = async (promise: Promise<unknown>): Promise<string> => {
  const error: unknown = await promise.catch((thrown: unknown) => thrown)
  expect(error).toBeInstanceOf(TokenClientError)
  return (error as TokenClientError).code
}

/** Timers and all clocks of the client; sockets and the loop stay real. */
export function useFakeTime(): void {
  vi.useFakeTimers({ toFake: ['setTimeout', 'clearTimeout', 'Date'] })
  const [realS, fakeMs] = [process.uptime(), Date.now()]
  vi.spyOn(process, 'uptime').mockImplementation(() => realS + (Date.now() - fakeMs) / 1_000)
  onTestFinished(() => void vi.useRealTimers().restoreAllMocks())
}
/** Turns of the loop, in which sockets are read. */
export async function turns(): Promise<void> {
  for (let turn = 0; turn < 5; turn += 1) await new Promise((resolve) => setImmediate(resolve))
}
/** Lets fake time pass, and what happens in it. */
export async function pass(ms: number, { stepMs = 50 } = {}): Promise<void> {
  for (let passed = 0; passed < ms; passed += stepMs) {
    await vi.advanceTimersByTimeAsync(stepMs)
    await turns()
  }
}

/** The answer of a service that takes `token-2` alone. */
export const strict = ({ headers }: ArrivedRequest): ScriptedAnswer => {
  return { status: headers.authorization === 'Bearer token-2' ? 200 : 401 }
}
/**
 * A daemon for this service that has `token-1`, and another one once that was reported; not `isPrompt`: once
 * `renew` is called.
 */
export async function renewingDaemon(
  baseUrl: string,
  { fields = {}, result = { verdict: 'refreshing' }, isPrompt = true } = {},
) {
  let count = 1
  const tokenNow = (change: object = {}) => tokenFields(`token-${count}`, { baseUrl, ...fields, ...change })
  const daemon = await daemonWith(({ type, answer }) => {
    if (type !== 'token.reject') return answer('token.result', tokenNow())
    answer('reject.result', result)
    if (isPrompt) renew()
  })
  function renew(change: object = {}): void {
    count += 1
    daemon.publish('token.changed', tokenNow(change))
  }
  const reports = (): number => daemon.asked.filter(({ type }) => type === 'token.reject').length
  return { ...daemon, renew, reports }
}
