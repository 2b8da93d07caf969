// Types of the parts of node-ipc 14.0.0 that are used; it ships none.
declare module 'node-ipc/parsers' {
  export class GuardedParser {
    constructor(config: {
      delimiter: string
      maxMessageSize: number
      maxPendingBytes: number
      maxEventNameLength: number
      messageTimeout: number
      allowReservedEvents: boolean
    })
    /** The message of a frame without its delimiter. Throws if it is none. */
    decode(frame: string): { readonly type: string; readonly data?: unknown }
  }
}
