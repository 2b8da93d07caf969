// The usual alternatives, where they are installed: their start, their memory, and the time in which one gives a secret.
import { mkdirSync, rmSync, writeFileSync } from 'node:fs'
import { connect } from 'node:net'
import { join } from 'node:path'
import { setTimeout as sleep } from 'node:timers/promises'
import { privateBytes } from '../kernel.ts'
import { CLI, end, NODE, outputOf, start } from '../programs.ts'
import { median } from '../rounds.ts'
import { timeRuns } from './starts.ts'
import { freshToken, type Trio, type World } from '../world.ts'

/** null: there is nothing to be measured, or it is not installed. */
export interface Peer {
  readonly what: string
  /** Until it accepts connections. */
  readonly startMs: number | null
  /** Private, after the reads. */
  readonly memoryMiB: number | null
  /** From the start of the program that reads until its end. */
  readonly readMs: number | null
  readonly remark: string
}

const STARTS = 5
const READS = 5
const RUNS_PER_READ = 5
/** gpg-agent takes no longer one. */
const PASSPHRASE_BYTES = 128

interface Agent {
  readonly what: string
  readonly socket: string
  readonly command: readonly string[]
  /** Gives it something to be read. */
  readonly fill?: () => Promise<unknown>
  readonly read: readonly string[]
  readonly env?: NodeJS.ProcessEnv
  readonly remark?: string
  /** The read ends with a status other than 0. */
  readonly mayFail?: boolean
  /** It leaves the process that starts it: its own process id, and how it ends. */
  readonly daemon?: { pid: () => Promise<number>; end: () => Promise<unknown> }
}

export async function peers(world: World, trio: Trio, progress: (what: string) => void): Promise<Peer[]> {
  progress('what people use instead')
  const measured = await ownReaders(world, trio)
  for (const agent of [...agentsIn(world), await gpgAgent(world)])
    measured.push(await measureAgent(world, agent))
  return [...measured, await systemdCreds(world)]
}

/** The ways to the token of a running daemon. */
async function ownReaders(world: World, trio: Trio): Promise<Peer[]> {
  const { path } = trio.ours
  const runtime = path.replace(/\/ipc\.sock$/, '')
  const http = ['-H', 'Accept: text/plain', 'http://localhost/v1/token']
  return [
    await reader(world, {
      what: 'its token file, read by `cat`',
      read: ['cat', join(runtime, 'token')],
      remark: 'no look at its expiry',
    }),
    await reader(world, {
      what: 'its `http.sock`, read by `curl`',
      read: ['curl', '-sS', '--unix-socket', join(runtime, 'http.sock'), ...http],
    }),
    await reader(world, {
      what: '`kyc-tokend token`, in Node',
      read: [NODE, CLI, 'token'],
      env: { KYC_TOKEND_SOCKET: path },
    }),
  ]
}

function agentsIn({ directory }: World): Agent[] {
  const home = join(directory, 'peers')
  mkdirSync(home, { mode: 0o700 })
  const env = { HOME: home }
  const ssh = { ...env, SSH_AUTH_SOCK: join(home, 'ssh.sock') }
  const redis = join(home, 'redis.sock')
  const oidc = join(home, 'oidc.sock')
  return [
    {
      what: 'ssh-agent',
      socket: ssh.SSH_AUTH_SOCK,
      command: ['ssh-agent', '-D', '-a', ssh.SSH_AUTH_SOCK],
      async fill() {
        await outputOf(['ssh-keygen', '-q', '-t', 'ed25519', '-N', '', '-f', join(home, 'key')])
        await outputOf(['ssh-add', '-q', join(home, 'key')], ssh)
      },
      read: ['ssh-add', '-L'],
      env: ssh,
    },
    {
      what: 'Redis',
      socket: redis,
      command: ['redis-server', '--port', '0', '--unixsocket', redis, '--save', '', '--dir', home],
      fill: async () => outputOf(['redis-cli', '-s', redis, 'set', 'token', freshToken()]),
      read: ['redis-cli', '-s', redis, 'get', 'token'],
    },
    {
      what: 'oidc-agent',
      socket: oidc,
      command: ['oidc-agent', '--console', '--no-autoload', '--socket-path', oidc],
      read: ['oidc-token', 'bench'],
      env: { ...env, OIDC_SOCK: oidc },
      mayFail: true,
      remark: 'a round trip only: it can be given no account without a network',
    },
  ]
}

/** Ends by itself soon after the program does that it starts. */
async function gpgAgent({ directory }: World): Promise<Agent> {
  const home = join(directory, 'gnupg')
  mkdirSync(home, { mode: 0o700 })
  const env = { GNUPGHOME: home }
  const listed = await outputOf(['gpgconf', '--list-dirs', 'agent-socket'], env).catch(() => '')
  const socket = listed.trim()
  const command = (words: string): string[] => ['gpg-connect-agent', '--no-autostart', words, '/bye']
  const secret = Buffer.from(freshToken()).subarray(0, PASSPHRASE_BYTES).toString('hex')
  return {
    what: 'gpg-agent',
    socket,
    command: ['gpg-agent', '--quiet', '--allow-preset-passphrase', '--daemon', 'sleep', '60'],
    fill: async () => outputOf(command(`PRESET_PASSPHRASE token -1 ${secret}`), env),
    read: command('GET_PASSPHRASE --no-ask --data token X X X'),
    env,
    remark: `a passphrase of ${PASSPHRASE_BYTES} bytes`,
    daemon: {
      async pid() {
        const said = await outputOf(command('GETINFO pid'), env)
        return Number(/^D (\d+)/.exec(said)?.[1])
      },
      async end() {
        await outputOf(command('KILLAGENT'), env)
        while (await accepts(socket)) await sleep(10)
      },
    },
  }
}

async function measureAgent(world: World, agent: Agent): Promise<Peer> {
  const { what, socket, command, env = {}, remark = '', daemon } = agent
  const [program = '', reading = ''] = [command[0], agent.read[0]]
  if (!(await isInstalled(program)) || !(await isInstalled(reading)))
    return notMeasured(what, 'not installed')
  const starts = []
  for (let round = 0; round < STARTS; round += 1) {
    starts.push(await timeStart(world, agent))
    await daemon?.end()
  }
  // One that was killed leaves its socket behind.
  rmSync(socket, { force: true })
  const running = start(command, { env, logFile: join(world.directory, 'peers.log') })
  try {
    for (let look = 0; look < 200 && !(await accepts(socket)); look += 1) await sleep(10)
    await agent.fill?.()
    const { readMs } = await reader(world, agent)
    const pid = daemon === undefined ? running.pid : await daemon.pid()
    return { what, startMs: median(starts), memoryMiB: memoryOf(pid), readMs, remark }
  } finally {
    await daemon?.end()
    await end(running, 'SIGKILL')
  }
}

/** In ms. The agents say something, too, before the time. */
async function timeStart({ starts }: World, { socket, command, env = {} }: Agent): Promise<number> {
  const said = await outputOf([starts, 'up', socket, ...command], env)
  return Number(said.trim().split('\n').at(-1)) / 1e6
}

function accepts(path: string): Promise<boolean> {
  return new Promise((resolve) => {
    const socket = connect(path, () => resolve(true))
    socket.on('connect', () => socket.destroy()).on('error', () => resolve(false))
  })
}

function memoryOf(pid: number | undefined): number | null {
  return pid === undefined ? null : privateBytes(pid) / 2 ** 20
}

async function systemdCreds(world: World): Promise<Peer> {
  const what = 'systemd-creds'
  if (!(await isInstalled('systemd-creds'))) return notMeasured(what, 'not installed')
  const [plain, sealed] = [join(world.directory, 'plain'), join(world.directory, 'sealed')]
  writeFileSync(plain, freshToken(), { mode: 0o600 })
  // A key of its own, so that the host's is neither needed nor made.
  const env = { SYSTEMD_CREDENTIAL_SECRET: join(world.directory, 'credential.secret') }
  await outputOf(['systemd-creds', 'setup'], env)
  await outputOf(['systemd-creds', 'encrypt', '--with-key=host', '--name=token', plain, sealed], env)
  return reader(world, { what, read: ['systemd-creds', 'decrypt', '--name=token', sealed, '-'], env })
}

function notMeasured(what: string, remark: string): Peer {
  return { what, startMs: null, memoryMiB: null, readMs: null, remark }
}

async function reader(
  world: World,
  {
    what,
    read,
    env = {},
    remark = '',
    mayFail = false,
  }: Pick<Agent, 'what' | 'read' | 'env' | 'remark' | 'mayFail'>,
): Promise<Peer> {
  if (!read[0]?.startsWith('/') && !(await isInstalled(read[0] ?? '')))
    return notMeasured(what, 'not installed')
  const ns = []
  for (let round = 0; round < READS; round += 1)
    ns.push(await timeRuns(world, read, { env, count: RUNS_PER_READ, mayFail }))
  return { ...notMeasured(what, remark), readMs: median(ns) / 1e6 }
}

async function isInstalled(name: string): Promise<boolean> {
  return outputOf(['sh', '-c', `command -v ${name}`]).then(
    () => true,
    () => false,
  )
}
