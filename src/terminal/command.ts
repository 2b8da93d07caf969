// A command: its words as data, from which help, completions and manual come, and its function.
import type { Readable, Writable } from 'node:stream'

export interface OptionSpec {
  /** Placeholder of the value in the help, in capitals; undefined: it takes no value. */
  readonly value?: string
  /** The possible values, if they are few. */
  readonly choices?: readonly string[]
  /** Shown in the help; the command itself applies it. */
  readonly default?: string
  readonly summary: string
}
export interface CommandSpec {
  readonly load: () => Promise<RunCommand>
  /** One line, without a full stop. */
  readonly summary: string
  /** Positional arguments as the usage line shows them, such as `[FINGERPRINT|-]`. */
  readonly positionals?: string
  readonly options: Readonly<Record<string, OptionSpec>>
  /** A further paragraph of the help and the manual, with the exit statuses that mean something of their own. */
  readonly details?: string
}
/** By name. */
export type Commands = Readonly<Record<string, CommandSpec>>

/** The arguments of a command. Its options have been checked against its CommandSpec. */
export interface Invocation {
  readonly options: Readonly<Record<string, string | boolean | undefined>>
  readonly positionals: readonly string[]
  readonly env: NodeJS.ProcessEnv
  readonly stdin: Readable
  readonly stdout: Writable
  readonly stderr: Writable
  /** SIGINT, SIGTERM and SIGHUP abort it, for commands that do not handle signals themselves. */
  readonly signal: AbortSignal
}
/** Resolves with the exit status (sysexits.h). Throws UserError for an error that a person can correct. */
export type RunCommand = (invocation: Invocation) => Promise<number>
