// Types of the parts of node-ipc 14.0.0 that are used; it ships none.
declare module 'node-ipc/parsers' {
  export interface ParserConfig {
    delimiter: string
    maxMessageSize: number
    maxPendingBytes: number
    maxEventNameLength: number
    /** 0: the parser's user watches over frames that do not end. */
    messageTimeout: number
    allowReservedEvents: boolean
  }
  export class IPCProtocolError extends Error {
    constructor(code: string, message: string)
    readonly code: string
  }
  export class FastParser {
    constructor(config: Pick<ParserConfig, 'delimiter'>)
    /** A frame with its delimiter. */
    encode(type: string, data: object): string
  }
  export class GuardedParser extends FastParser {
    constructor(config: ParserConfig)
    /** The message of a frame without its delimiter, if it is not too long. Throws IPCProtocolError. */
    decode(frame: string): unknown
    /** The second half of that. */
    decodeMessage(frame: string): unknown
  }
}
declare module 'node-ipc' {
  /** The client, with which the tests and the manual's example ask the daemon. */
  export class IPCModule {
    readonly config: object
  }
}
