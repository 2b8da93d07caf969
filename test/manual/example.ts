// Runs an example of the manual against a daemon of the test: its directory, its service, its `kyc-tokend`.
import { existsSync, mkdirSync, readFileSync, symlinkSync, writeFileSync } from 'node:fs'
import { dirname, join } from 'node:path'
import { PROGRAM, startDaemon } from '../support/daemon.ts'
import { jwtOf } from '../support/jwt.ts'
import { serviceOf } from '../support/outside.ts'
import { runProgram } from '../support/run-cli.ts'
import { granting } from '../support/service.ts'
import { tempDirectory } from '../support/temp-directory.ts'
import { expectUntil } from '../support/until.ts'
import { block, EXAMPLES, PROJECT } from './manual.ts'

export type Example = Awaited<ReturnType<typeof startExample>>

/** A daemon with a token, and a service that takes any request. */
export async function startExample(
  config: { tokenFiles?: readonly { path: string; format?: string }[]; [setting: string]: unknown } = {},
  given?: string,
) {
  const directory = given ?? (await tempDirectory('memory'))
  const token = jwtOf({ exp: Date.now() / 1000 + 3_600 })
  const service = await serviceOf(({ path }) =>
    path === '/token/external/jwt' ? granting(token) : { body: `${path} is answered\n` },
  )
  const daemon = startDaemon({ directory, baseUrl: service.url, config })
  await daemon.listening()
  const paths = ['token', ...(config.tokenFiles ?? []).map(({ path }) => path)]
  await expectUntil('the token files', () => paths.every((path) => existsSync(join(directory, 'run', path))))
  const env = { KYC_TOKEND_SOCKET: daemon.ipcPath, no_proxy: '127.0.0.1' }
  return {
    daemon,
    service,
    token,
    /** The header `Authorization` of each request that came for this path. */
    authorizations: (path: string): (string | undefined)[] =>
      service.requests.filter((request) => request.path === path).map(({ headers }) => headers.authorization),
    /** Runs the marked block, or this file of the examples, with this interpreter, and returns its output. Rejects if it fails. */
    run: async (
      name: string,
      how: { with: readonly string[]; as?: string; file?: string; edit?: (code: string) => string },
    ): Promise<string> => {
      const { file, as = file, edit = (text) => text } = how
      const written = file === undefined ? block(name).code : readFileSync(join(EXAMPLES, file), 'utf8')
      const code = edit(written)
        .replaceAll('/run/kyc-tokend', join(directory, 'run'))
        .replaceAll('https://api.example.com', service.url)
      if (as !== undefined) writeFileSync(join(directory, as), code)
      const { status, stdout, stderr } = await runProgram([...how.with, as ?? code], { env, cwd: directory })
      if (status !== 0) throw new Error(`ended with ${String(status)}: ${stderr}`)
      return stdout
    },
  }
}

/** The client library as the package installs it, and these other ones, for the programs of the example. */
export function installClient({ daemon }: Example, others: readonly string[] = []): void {
  const modules = join(daemon.directory, 'node_modules')
  mkdirSync(join(modules, 'kyc-tokend'), { recursive: true })
  symlinkSync(join(PROJECT, 'package.json'), join(modules, 'kyc-tokend/package.json'))
  symlinkSync(dirname(PROGRAM[1]), join(modules, 'kyc-tokend/dist'))
  for (const name of others) symlinkSync(join(PROJECT, 'node_modules', name), join(modules, name))
}
