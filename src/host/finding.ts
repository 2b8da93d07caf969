// A path that a fault of the configuration is about, because it is not there or may not be read.
export interface Hidden {
  readonly path: string
  readonly isAbsent: boolean
}
