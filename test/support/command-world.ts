// A service, a real daemon that asks it, and the command line that asks the daemon.
import { writeFileSync } from 'node:fs'
import { join } from 'node:path'
import { startDaemon, type Daemon } from './daemon.ts'
import { jwtOf } from './jwt.ts'
import { serviceOf } from './outside.ts'
import { runCli, type Ended } from './run-cli.ts'
import { granting, type Answer } from './service.ts'
import { tempDirectory } from './temp-directory.ts'

export type CommandWorld = Awaited<ReturnType<typeof commandWorld>>

/** A token of the test's that lives an hour; another number is another token. */
export function hourToken(number = 1): string {
  const iat = Math.floor(Date.now() / 1_000)
  return jwtOf({ iat, exp: iat + 3_600 }, number)
}

/** The daemon listens when this resolves, beside the files; whether it has a token depends on the answer. */
export async function commandWorld(
  options: { answer?: Answer; config?: object; files?: Readonly<Record<string, string>> } = {},
) {
  const directory = await tempDirectory()
  const service = await serviceOf(options.answer ?? granting(hourToken()))
  for (const [name, content] of Object.entries(options.files ?? {}))
    writeFileSync(join(directory, name), content, { mode: 0o600 })
  const start = async (): Promise<Daemon> => {
    const started = startDaemon({
      directory,
      baseUrl: service.url,
      ...(options.config !== undefined && { config: options.config }),
    })
    await started.listening()
    return started
  }
  const daemon = await start()
  return {
    service,
    daemon,
    directory,
    /** Another daemon in the same directory, after the first has ended. */
    again: start,
    /** Runs the command line for this daemon. */
    cli: (args: readonly string[], given: { input?: string; env?: NodeJS.ProcessEnv } = {}): Promise<Ended> =>
      runCli(args, { ...given, env: { KYC_TOKEND_SOCKET: daemon.ipcPath, ...given.env } }),
  }
}
