declare module 'node-ipc' {
  /** The client, with which the manual's example asks the daemon. */
  export class IPCModule {
    readonly config: object
  }
}
