// A host with systemd and a daemon of the system, for commands: a mount namespace with its own /run and /etc, and
// another `systemctl`.
import { spawn } from 'node:child_process'
import { once } from 'node:events'
import {
  chmodSync,
  chownSync,
  existsSync,
  mkdirSync,
  readFileSync,
  rmSync,
  symlinkSync,
  writeFileSync,
} from 'node:fs'
import { join } from 'node:path'
import { text } from 'node:stream/consumers'
import { PROGRAM } from './daemon.ts'
import { lacks } from './lacks.ts'
import type { Ended } from './run-cli.ts'
import { canMount } from './small-disk.ts'
import { tempDirectory } from './temp-directory.ts'

/** Here no such host can be made. */
export const isWithoutHost = !canMount || lacks('unshare')

/** Prints the properties that are asked for, of the unit that is the last word; other calls it writes down, or fails if shown to. */
const SYSTEMCTL = `#!/bin/sh
cd "$(dirname "$0")/units" || exit
if [ "$1" = show ]; then : >../shown; else echo "$*" >>../calls; fi
if [ -e "$1" ]; then cat "$1" >&2; exit 1; fi
for unit; do :; done
if [ "$1" = status ]; then cat "$unit.status" 2>/dev/null; exit 0; fi
for word; do grep "^$word=" "$unit"; done 2>/dev/null
exit 0
`
/** The clock is not synchronised. */
const TIMEDATECTL = `#!/bin/sh
test "$*" = 'show --property=NTPSynchronized --value' && echo no
`

export type Properties = Readonly<Record<string, string>>

export interface Host {
  /** Properties of loaded units by name; `unit` are those of the daemon's. */
  readonly units?: Readonly<Record<string, Properties>>
  readonly unit?: Properties
  /** Sockets of the daemons of the system and of its accounts. */
  readonly socket?: string
  readonly accounts?: Readonly<Record<string, string>>
  /** Null: there is none. */
  readonly config?: object | null
  /** That of an earlier call, with the files that it left. */
  readonly directory?: string
  /** What `systemctl status` says of the service. */
  readonly words?: string
  /** There is the user kyc-tokend. */
  readonly hasUser?: boolean
  /** The command of systemctl that fails. */
  readonly failing?: string
  /** The name of a secret file that only root reads; then all read the configuration. */
  readonly secretFile?: string
  /** Its mode. */
  readonly alertCommand?: number
  readonly uid?: number
  /** Beside PATH and HOME. */
  readonly env?: NodeJS.ProcessEnv
}

/** Runs a command on such a host. */
export async function onHost(words: readonly string[], host: Host): Promise<Ended & { calls: string[] }> {
  const {
    unit,
    units,
    socket,
    accounts = {},
    config = {},
    secretFile,
    alertCommand,
    hasUser = false,
    failing,
    directory = await tempDirectory(),
    uid,
  } = host
  const under = (...path: string[]): string => join(directory, ...path)
  for (const made of ['', 'run/systemd/system', 'run/kyc-tokend', 'etc/kyc-tokend', 'sbin/units', 'state'])
    mkdirSync(under(made), { recursive: true })
  chmodSync(directory, 0o755)
  rmSync(under('run/kyc-tokend/ipc.sock'), { force: true })
  if (socket !== undefined) symlinkSync(socket, under('run/kyc-tokend/ipc.sock'))
  for (const [name, path] of Object.entries(accounts)) {
    mkdirSync(under('run/kyc-tokend/accounts', name), { recursive: true })
    symlinkSync(path, under('run/kyc-tokend/accounts', name, 'ipc.sock'))
  }
  const mode = secretFile === undefined ? 0o640 : 0o644
  if (config !== null)
    writeFileSync(under('etc/kyc-tokend/kyc-tokend.config.json'), JSON.stringify(config), { mode })
  if (hasUser) {
    writeFileSync(under('etc/passwd'), 'root:x:0:0::/:/bin/sh\nkyc-tokend:x:4242:4243::/:/bin/false\n')
    writeFileSync(under('etc/group'), 'root:x:0:\nkyc-tokend:x:4243:\nkyc-token:x:4244:\n')
    chownSync(under('run/kyc-tokend'), 0, 0)
    chmodSync(under('run/kyc-tokend'), 0o751)
    if (config !== null) chownSync(under('etc/kyc-tokend/kyc-tokend.config.json'), 0, 4243)
  }
  if (secretFile !== undefined)
    writeFileSync(under('etc/kyc-tokend', secretFile), 'secret-1', { mode: 0o600 })
  writeFileSync(under('etc/hosts'), '127.0.0.1 localhost\n')
  if (alertCommand !== undefined)
    writeFileSync(under('etc/kyc-tokend/alert-command'), '#!/bin/sh\n', { mode: alertCommand })
  rmSync(under('sbin/calls'), { force: true })
  if (host.words !== undefined) writeFileSync(under('sbin/units/kyc-tokend.service.status'), host.words)
  if (failing !== undefined) writeFileSync(under('sbin/units', failing), 'It said no.\nAnd more.\n')
  writeFileSync(under('sbin/systemctl'), SYSTEMCTL, { mode: 0o755 })
  writeFileSync(under('sbin/timedatectl'), TIMEDATECTL, { mode: 0o755 })
  for (const [name, given] of Object.entries({ ...units, ...(unit && { 'kyc-tokend.service': unit }) })) {
    const lines = Object.entries({ LoadState: 'loaded', ...given }).map(([key, value]) => `${key}=${value}\n`)
    writeFileSync(under('sbin/units', name), lines.join(''))
  }
  const inside =
    'for name in run etc; do mount --bind "$0/$name" "/$name"; done; mount --bind "$0/sbin" /usr/sbin; ' +
    'mount -t tmpfs tmpfs /var/lib; mkdir -m 0700 /var/lib/kyc-tokend; chown 4242:4243 /var/lib/kyc-tokend; exec "$@"'
  const as = uid === undefined ? [] : ['setpriv', `--reuid=${uid}`, `--regid=${uid}`, '--clear-groups']
  const child = spawn('unshare', ['--mount', 'sh', '-euc', inside, directory, ...as, ...PROGRAM, ...words], {
    env: { PATH: process.env['PATH'], HOME: '/', ...host.env },
  })
  const [stdout, stderr, [status]] = await Promise.all([
    text(child.stdout),
    text(child.stderr),
    once(child, 'close') as Promise<[number | null]>,
  ])
  const calls = existsSync(under('sbin/calls'))
    ? readFileSync(under('sbin/calls'), 'utf8').split('\n').slice(0, -1)
    : []
  return { status, signal: null, stdout, stderr, calls }
}
