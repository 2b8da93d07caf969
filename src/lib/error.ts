// Errors for people: one sentence that names the setting and the remedy, and the exit status.

/** Exit statuses, from sysexits.h. */
export const exitStatus = {
  ok: 0,
  usage: 64,
  unavailable: 69,
  internal: 70,
  tryAgain: 75,
  noPermission: 77,
  configuration: 78,
} as const
export type ExitStatus = (typeof exitStatus)[keyof typeof exitStatus]

/**
 * A failure that a person can fix. `message` is what is printed, without a stack trace: what is wrong and the
 * remedy. Everything else that is thrown is an internal error (status 70).
 */
export class UserError extends Error {
  override readonly name = 'UserError'
  readonly status: ExitStatus
  constructor(message: string, status: ExitStatus, options?: ErrorOptions) {
    super(message, options)
    this.status = status
  }
}

/** A command or option that was given wrongly (status 64). */
export class UsageError extends UserError {
  constructor(message: string, options?: ErrorOptions) {
    super(message, exitStatus.usage, options)
  }
}

/** The code of a system error (`ENOENT`, `EACCES` …), or undefined if it is none. */
export function errorCode(error: unknown): string | undefined {
  const code = (error as { code?: unknown } | null | undefined)?.code
  return typeof code === 'string' ? code : undefined
}

/** Handles an error of the system by this value, and throws any other. */
export function fallbackOnSystemError<T>(value: T): (error: unknown) => T {
  return (error) => {
    if (errorCode(error) === undefined) throw error
    return value
  }
}

/** The result of the call, or this value if the system refuses it. Throws any other error. */
export function withSystemFallback<T, F>(fallback: F, call: () => T): T | F {
  try {
    return call()
  } catch (error) {
    return fallbackOnSystemError(fallback)(error)
  }
}

export function errorMessage(error: unknown): string {
  return error instanceof Error ? error.message : String(error)
}
