// Reads the files that a configuration names: secrets, certificates, templates. Their faults have the key path of the setting.
import { resolve } from 'node:path'

import type { Diagnostics } from './issues.ts'
import { permissionFaults, readFile } from './read-file.ts'

export interface InputContext {
  readonly env: NodeJS.ProcessEnv
  /** The directory of the configuration file, to which inputs are relative. */
  readonly directory: string
  /** The user that runs the daemon. */
  readonly uid: number
  /**
   * The daemon runs elsewhere, as a service: a source that only the service sees (credentials, environment) is a
   * warning where it is not there.
   */
  readonly isElsewhere: boolean
  readonly diagnostics: Diagnostics
  /** Every file that was read or should have been, absolute: nothing may be written over it. */
  readonly reads: string[]
  /** The settings whose source was a warning for that reason. */
  readonly unseen: string[]
}

/** The bytes of a file; undefined where they cannot be used, and then the diagnostics have the reason. */
export function readInput(
  path: string,
  {
    at,
    holdsSecret,
    remedy,
    context,
  }: {
    at: string
    holdsSecret: boolean
    /** For a file that is not there. */ remedy: string
    context: InputContext
  },
): Buffer | undefined {
  const file = resolve(context.directory, path)
  const refuse = (sentence: string): undefined => {
    context.diagnostics.fault(at, `the file ${file} ${sentence}`)
    return undefined
  }
  context.reads.push(file)
  const reading = readFile(file)
  if (reading.kind === 'absent') return refuse(`is not there: ${remedy}`)
  if (reading.kind === 'unreadable') return refuse(reading.sentence)
  for (const sentence of permissionFaults(file, reading.stats, { uid: context.uid, holdsSecret }))
    refuse(sentence)
  return reading.bytes
}
