// Types of the parts of node-ipc 14.0.0 that are used; it ships none.
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
  export class FastParser {
    constructor(config: Config)
    /** A frame with its delimiter. */
    encode(type: string, data: object): string
  }
  export class GuardedParser extends FastParser {
    /** The message of a frame. Throws IPCProtocolError. */
    decodeMessage(frame: string): unknown
    assertFrameSize(characters: number, bytes: number): void
  }
  /** A socket as the server keeps it: the beginning of a frame, and the receiver of whole ones. */
  export interface IpcSocket extends Socket {
    ipcBuffer: string
    ipcDispatch: (message: unknown) => void
    /** Added by this daemon, for `protocolFailure`. */
    ipcViolation: () => void
  }
  export interface Server {
    /** Hands each whole frame of `ipcBuffer` and this text to `ipcDispatch`, and keeps what is left. */
    receive(socket: IpcSocket, text: string): void
    readonly encode: (type: string, data: object) => string
    /** Called at each violation of the framing. */
    protocolFailure: (socket: IpcSocket, error: Error) => void
  }
  export class IPCModule {
    readonly config: Config
    readonly server: Server
    serve(path: string): void
  }
}
