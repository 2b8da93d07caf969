// What is used of node-ipc 14.0.0, which ships no types.
declare module 'node-ipc' {
  import type { Socket } from 'node:net'

  export interface Config {
    silent: boolean
    secureSocketRoot: boolean
    unlink: boolean
    maxMessageSize: number
    maxPendingBytes: number
    maxEventNameLength: number
    messageTimeout: number
    parser: new (config: Config) => GuardedParser
  }
  export class IPCProtocolError extends Error {
    constructor(code: string, message: string)
    readonly code: string
  }
  export class GuardedParser {
    constructor(config: Config)
    readonly profile: string
    /** Hands each whole frame of `rest + chunk` to `receive`, and returns what is left. */
    read(rest: Buffer | '', chunk: Buffer, receive: (message: unknown) => unknown): Buffer | ''
    /** The message of a frame. Throws IPCProtocolError. */
    decode(frame: string): unknown
    decodeMessage(frame: string): unknown
    assertFrameSize(characters: number, bytes: number): void
  }
  /** A socket as the server keeps it: the beginning of a frame, and who is given the whole ones. */
  export interface IpcSocket extends Socket {
    ipcBuffer: Buffer | ''
    ipcDispatch: (message: unknown) => unknown
  }
  export interface Server {
    receive(socket: Socket, chunk: Buffer): void
    /** Called at each violation of the framing. */
    protocolFailure: (socket: Socket, error: Error) => void
  }
  export class IPCModule {
    readonly config: Config
    readonly server: Server
    serve(path: string): void
  }
}
