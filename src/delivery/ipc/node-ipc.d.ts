// Types of the parts of node-ipc 14.0.0 that are used; it ships none.
declare module 'node-ipc/parsers' {
  export class Parser {
    constructor(config: { delimiter: string })
    /** The message of a frame without its delimiter. Throws if it is no JSON. */
    decode(frame: string): unknown
  }
}
