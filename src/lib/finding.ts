// A finding of `check`: a sentence for people, and how grave it is.

export interface Finding {
  /** `failure`: the service gave no token, which is no fault of this host. */
  readonly level: 'ok' | 'warning' | 'fault' | 'failure'
  /** The finding, with the remedy if one is needed. */
  readonly sentence: string
}

export const ok = (sentence: string): Finding => ({ level: 'ok', sentence })
export const warning = (sentence: string): Finding => ({ level: 'warning', sentence })
export const fault = (sentence: string): Finding => ({ level: 'fault', sentence })
export const failure = (sentence: string): Finding => ({ level: 'failure', sentence })
