// Types of the parts of node-ipc 14.0.0 that are used; it ships none.
declare module 'node-ipc/parsers' {
  export class IPCProtocolError extends Error {
    readonly code: string
  }
  export class FastParser {
    constructor(config: { delimiter: string })
    /** A frame with its delimiter. */
    encode(type: string, data: object): string
    /** The JSON of a frame without its delimiter. Throws IPCProtocolError if it is none. */
    decode(frame: string): unknown
  }
}
