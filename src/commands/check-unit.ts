// What systemd makes of the unit: whether it can start, and what the daemon sees within its sandbox, by a copy of it that looks.
import { existsSync, globSync, realpathSync, rmSync, statSync, writeFileSync, readFileSync } from 'node:fs'
import { basename, dirname, isAbsolute, join } from 'node:path'
import type { Readable } from 'node:stream'
import { serviceEnvironment, unitNames } from '../lib/account.ts'
import { exitStatus, UserError, withSystemFallback } from '../lib/error.ts'
import { fault, warning, type Finding } from '../lib/finding.ts'
import { readLimited } from '../lib/input.ts'
import { SERVICE_USER, SYSTEM_CONFIG_DIRECTORY } from '../lib/paths.ts'
import { groupsOf, localUser } from '../lib/posix-ids.ts'
import { dropIn, shellWord, unitPlace } from '../lib/remedy.ts'
import { runProgram } from '../lib/run-program.ts'
import { look, type Looked, type LookedConfig } from './check-look.ts'
import {
  ALERT_COMMAND,
  configDirectory,
  failedStart,
  firstLine,
  unitCredentials,
  unitProperties,
  type SystemdState,
} from './systemd.ts'

/** The permissions that others need to run a script, which has to be read for that. */
const RUN_BY_OTHERS = 0o005
/** The longest time for a look, which may wait for the service. */
const LOOK_MS = 90_000
const UNITS = '/run/systemd/system'
const COPY = 'kyc-tokend-check-'

export type Unit = NonNullable<Awaited<ReturnType<typeof readUnit>>>

/** The facts about an account's unit that this user may see. Null if the unit is not installed, or no systemd runs here. */
export async function readUnit(account: string | undefined) {
  const { unit: name, httpUnit } = unitNames(account)
  const service = `${name}.service`
  const asked = [
    'ActiveState',
    'Result',
    'ExecMainStatus',
    'NeedDaemonReload',
    'ReadWritePaths',
    'DropInPaths',
    'ImportCredential',
  ]
  const properties = await unitProperties(service, asked)
  if (properties === null) return null
  const { RUNTIME_DIRECTORY: directory } = serviceEnvironment(account)
  const sockets = await Promise.all(
    [
      { name: `${name}.socket`, file: 'ipc.sock' },
      { name: `${httpUnit}.socket`, file: 'http.sock' },
    ].map(async ({ name: socket, file }) => {
      const words = ['ActiveState', 'Listen', 'SocketUser', 'SocketGroup', 'SocketMode', 'NeedDaemonReload']
      const known = (await unitProperties(socket, words)) ?? {}
      const listening = wordsOf(known['Listen']).find((word) => isAbsolute(word))
      return {
        name: socket,
        isMasked: known['LoadState'] === 'masked',
        state: known['ActiveState'] ?? 'not installed',
        needsReload: known['NeedDaemonReload'] === 'yes',
        // systemd does not read a masked unit.
        path: listening ?? join(directory, file),
        user: known['SocketUser'] || SERVICE_USER,
        group: known['SocketGroup'] || 'kyc-token',
        mode: Number.parseInt(known['SocketMode'] || '660', 8),
      }
    }),
  )
  return {
    account,
    /** Without its suffix. */
    name,
    properties,
    isMasked: properties['LoadState'] === 'masked',
    isActive: properties['ActiveState'] === 'active',
    sockets,
    runs: (file: string) => dirname(file) === configDirectory(account),
  }
}

/** Findings about what keeps the unit from starting, about its credentials and the alert command. For root. */
export async function unitFindings(
  unit: Unit,
  {
    config,
    alerts,
    isStarted,
  }: { config: LookedConfig | null; alerts: Omit<SystemdState, 'unit'>; isStarted: boolean },
): Promise<Finding[]> {
  const { name, properties } = unit
  const service = `${name}.service`
  const needed = wordsOf(properties['ReadWritePaths']).filter((path) => isAbsolute(path))
  const reloading = [
    ...(properties['NeedDaemonReload'] === 'yes' ? [service] : []),
    ...unit.sockets.filter(({ needsReload }) => needsReload).map((socket) => socket.name),
  ]
  return [
    ...(reloading.length === 0
      ? []
      : [
          warning(`${reloading.join(' and ')} changed on disk, and systemd has not read that yet`, [
            'sudo systemctl daemon-reload',
            `sudo systemctl restart ${name}`,
          ]),
        ]),
    ...stateFindings(unit, isStarted),
    ...needed.map((path) => {
      const setting = `a drop-in of ${service} has ReadWritePaths=${path}`
      const remedy = `write ReadWritePaths=-${path} there`
      const files = wordsOf(properties['DropInPaths']).map(shellWord).join(' ')
      const change = String.raw`/^ReadWritePaths=/s#\([= ]\)${path}\( \|$\)#\1-${path}\2#`
      const commands = [
        `sudo sed -i '${change}' ${files}`,
        'sudo systemctl daemon-reload',
        `sudo systemctl restart ${name}`,
      ]
      return existsSync(path)
        ? warning(`${setting}: without that directory the daemon would not start; ${remedy}`, commands)
        : fault(
            `${setting}, which does not exist, so the daemon does not start (226/NAMESPACE); ${remedy}`,
            commands,
          )
    }),
    ...(await credentialFindings(unit, config)),
    ...alertCommandFindings(alerts),
  ]
}

/** `isStarted`: a copy of the unit, which has another ExecStart=, could start. */
function stateFindings({ name, properties, isMasked }: Unit, isStarted: boolean): Finding[] {
  const service = `${name}.service`
  if (isMasked)
    return [
      fault(`${service} is masked, so that the daemon does not start`, [
        `sudo systemctl unmask ${service}`,
        `sudo systemctl enable --now ${name}`,
      ]),
    ]
  const { ActiveState: state, Result: result, ExecMainStatus: status = '' } = properties
  const isFailed = state === 'failed' || (result !== 'success' && state !== 'active')
  // Why a copy cannot start is a finding already.
  if (!isFailed || result === undefined || !isStarted) return []
  const known = failedStart(name, status)
  // Its own program could not be run; all else the copy would have met.
  if (status === '203' && known !== undefined) return [fault(known.text, known.commands)]
  const why = result === 'exit-code' ? `exit status ${status}` : result
  return [warning(`${service} failed at its last start (${why})`, [`sudo systemctl restart ${name}`])]
}

/** Findings about the sockets of the units that the configuration uses. Makes no connection, which would start the daemon. */
export function unitSocketFindings(unit: Unit, { sockets }: LookedConfig): Finding[] {
  return unit.sockets.flatMap(({ name, path, state, isMasked, mode }) => {
    const used = sockets.find((socket) => socket.path === path)
    if (used === undefined) return []
    if (state !== 'active') {
      // The daemon requires the first one, and cannot start without it.
      const find = isMasked && name === `${unit.name}.socket` ? fault : warning
      return [
        find(`the socket ${path} is closed, because ${name} is ${isMasked ? 'masked' : state}`, [
          ...(isMasked ? [`sudo systemctl unmask ${name}`] : []),
          // The socket alone cannot be started beside a daemon that runs.
          `sudo systemctl restart ${name} ${unit.name}`,
        ]),
      ]
    }
    if ((mode & 0o002) === 0 || !used.isOpen) return []
    const lines = ['[Socket]', 'SocketMode=0660', 'SocketGroup=kyc-token']
    return [
      warning(`every user of this host may connect to ${path} and take the token`, [
        ...dropIn(name, { name: 'mode', lines }),
        `sudo systemctl restart ${name} ${unit.name}`,
      ]),
    ]
  })
}

async function credentialFindings(unit: Unit, config: LookedConfig | null): Promise<Finding[]> {
  if (unit.isMasked) return []
  const service = `${unit.name}.service`
  const credentials = await unitCredentials(service)
  const lost = credentials?.filter(({ path }) => isAbsolute(path) && !existsSync(path)) ?? []
  const hidesAny = credentials === null || (unit.properties['ImportCredential'] ?? '') !== ''
  const wanted = config?.systemdCredentials ?? []
  const unknown = hidesAny ? [] : wanted.filter((id) => !credentials.some((one) => one.id === id))
  const edit = [`sudo systemctl edit ${service}`, `sudo systemctl restart ${unit.name}`]
  return [
    ...lost.map(({ id, path }) =>
      fault(
        `a drop-in of ${service} loads the credential ${id} from ${path}, which does not exist, so the daemon does not start (243/CREDENTIALS); make the file, or correct the drop-in`,
        edit,
      ),
    ),
    ...unknown.map((id) =>
      fault(
        `${config?.file}: ${service} loads no credential ${id}: add LoadCredential=${id}:/PATH to it`,
        edit,
      ),
    ),
  ]
}

/** Findings about the alert command, which its unit runs as another user than root. */
function alertCommandFindings({ alertCommand, alertProblem }: Omit<SystemdState, 'unit'>): Finding[] {
  const mode = statSync(ALERT_COMMAND, { throwIfNoEntry: false })?.mode
  if (mode === undefined) return []
  const isRunnable = (mode & RUN_BY_OTHERS) === RUN_BY_OTHERS
  const failure = alertCommand?.failure ?? null
  return [
    ...(isRunnable
      ? []
      : [fault('the alert command cannot be run by its unit', [`sudo chmod 755 ${ALERT_COMMAND}`])]),
    ...(alertProblem === null ? [] : [warning(alertProblem)]),
    ...(failure === null ? [] : [warning(`the alert command failed at its last run, ${failure}`)]),
  ]
}

// ---- a look from within -----------------------------------------------------------------------------------------------

/** What the copy gets on its standard input. */
interface Request {
  readonly configPath: string | undefined
  readonly account: string | undefined
  readonly staged: readonly (readonly [string, string])[]
  readonly isWhole: boolean
  readonly isLive: boolean
}

/** Settings of the copy: it starts once, makes and removes nothing, and has no socket. */
const COPY_SETTINGS = [
  'Type=oneshot',
  'Restart=no',
  'WatchdogSec=0',
  'NotifyAccess=none',
  'TimeoutStartSec=60',
  ...[
    'ExecCondition',
    'ExecStartPre',
    'ExecStartPost',
    'ExecReload',
    'ExecStop',
    'ExecStopPost',
    'ExecStart',
  ].map((name) => `${name}=`),
  ...['StateDirectory', 'RuntimeDirectory', 'CacheDirectory', 'LogsDirectory'].map((name) => `${name}=`),
]

/**
 * Looks from within a copy of the unit, which systemd starts. Gives what it saw, or findings about why systemd could not start
 * it. No file of the copy stays, whatever ends this.
 */
export async function lookFromUnit(
  unit: Unit,
  request: Omit<Request, 'account'>,
  signal: AbortSignal,
): Promise<{ looked: Looked } | { findings: Finding[] }> {
  const { account, name } = unit
  const { isOk, stdout: text } = await runProgram(
    'systemctl',
    ['cat', '--no-pager', `${name}.service`],
    LOOK_MS,
  )
  if (!isOk) return { findings: [fault(`systemd does not show ${name}.service`, [`systemctl cat ${name}`])] }
  for (const file of globSync(`${UNITS}/${COPY}*`)) if (isLeft(file)) rmSync(file, { force: true })
  const own = `${COPY}${process.pid}`
  const copy = account === undefined ? `${own}.service` : `${own}@${account}.service`
  const file = join(UNITS, account === undefined ? copy : `${own}@.service`)
  const answer = `/run/${own}.json`
  const stop = (): void => void runProgram('systemctl', ['stop', copy], LOOK_MS)
  signal.addEventListener('abort', stop)
  try {
    writeFileSync(file, copyOf(text, { account, answer, request: { ...request, account } }), { mode: 0o600 })
    const started = await runProgram('systemctl', ['start', '--wait', copy], LOOK_MS)
    signal.throwIfAborted()
    const looked = withSystemFallback('', () => readFileSync(answer, 'utf8'))
    if (started.isOk && looked !== '') return { looked: JSON.parse(looked) as Looked }
    return { findings: [await whyNotStarted(unit, copy)] }
  } finally {
    signal.removeEventListener('abort', stop)
    rmSync(file, { force: true })
    rmSync(answer, { force: true })
    await runProgram('systemctl', ['reset-failed', copy], LOOK_MS)
  }
}

/** The copy of a process that is gone. */
function isLeft(file: string): boolean {
  const pid = /-(\d+)@?\.service$/.exec(file)?.[1]
  return pid !== undefined && !existsSync(`/proc/${pid}`)
}

/** `text`: what systemctl cat says of the unit, whose dependencies would start other units. */
function copyOf(
  text: string,
  { account, answer, request }: { account: string | undefined; answer: string; request: Request },
): string {
  let section = ''
  const service = text.split('\n').filter((line) => {
    if (/^\[.*\]\s*$/.test(line)) section = line.trim()
    return section === '[Service]' && !/^\s*(?:[#;]|Sockets=)/.test(line)
  })
  const { STATE_DIRECTORY } = serviceEnvironment(account)
  const program = [process.execPath, '--jitless', realpathSync(process.argv[1] ?? ''), 'check']
  return [
    ...service,
    '[Service]',
    ...COPY_SETTINGS,
    `ReadWritePaths=-${STATE_DIRECTORY}`,
    `Environment=STATE_DIRECTORY=${STATE_DIRECTORY} ${LOOK_VARIABLE}=1`,
    'StandardInput=data',
    `StandardInputData=${Buffer.from(JSON.stringify(request)).toString('base64')}`,
    `StandardOutput=file:${answer}`,
    `ExecStart=${program.map((word) => `"${word.replaceAll(/["\\]/g, String.raw`\$&`).replaceAll('%', '%%')}"`).join(' ')}`,
    '',
  ].join('\n')
}

async function whyNotStarted({ name }: Unit, copy: string): Promise<Finding> {
  const shown = (await unitProperties(copy, ['Result', 'ExecMainStatus'])) ?? {}
  const status = shown['ExecMainStatus'] ?? ''
  // The first one is of the process that was to run the program, the last one says that it failed.
  const words = ['-u', copy, '-o', 'cat', '-p', 'err', '--no-pager']
  const said = firstLine((await runProgram('journalctl', words, LOOK_MS)).stdout)
  const why = said === '' ? '' : ` (${said})`
  const known = failedStart(name, status)
  if (known === undefined) {
    const how = status === '0' || status === '' ? (shown['Result'] ?? 'no answer') : `exit status ${status}`
    return fault(`${name}.service cannot be started: ${how}${why}`, [`systemctl cat ${name}.service`])
  }
  return fault(`${known.text}${why}`, known.commands)
}

/** Set in the environment of the copy. */
export const LOOK_VARIABLE = 'KYC_TOKEND_LOOK'

/** The other side: looks as the request on the standard input says, and gives what it saw as JSON. */
export async function answerLook(
  stdin: Readable,
  { env, signal }: { env: NodeJS.ProcessEnv; signal: AbortSignal },
): Promise<string> {
  const bytes = await readLimited(stdin as AsyncIterable<Buffer>, { maxBytes: 1_048_576 })
  if (bytes === undefined) throw new UserError('The request is too long.', exitStatus.usage)
  const { account, staged, ...request } = JSON.parse(bytes.toString()) as Request
  const place = unitPlace(account)
  return JSON.stringify(
    await look({ ...request, env, staged: new Map(staged), isElsewhere: false, place, signal }),
  )
}

/** A finding of the copy, as this process sees the path, which is root outside of the sandbox: it tells who hides it. */
export function asSeenOutside(finding: Finding, unit: string): Finding {
  const { hidden } = finding
  if (hidden === undefined || finding.level !== 'fault') return finding
  const found = withSystemFallback(null, () => realpathSync(hidden.path))
  if (found === null || !(hidden.isAbsent || found !== hidden.path || isOpenToDaemon(found))) return finding
  const link = found === hidden.path ? '' : `, a link to ${found}`
  const settings = 'a setting such as ProtectHome=, PrivateTmp= or InaccessiblePaths= may hide it'
  const why = `${unit}.service does not see ${hidden.path}${link} (${settings}, which systemctl cat ${unit} shows)`
  if (statSync(found).isDirectory()) {
    const make = `sudo install -d -m 2750 -o ${SERVICE_USER} -g kyc-token /srv/kyc-tokend`
    return fault(`${why}; set another directory, such as one below /srv`, [make])
  }
  const own = join(SYSTEM_CONFIG_DIRECTORY, basename(found))
  if (found === own)
    return fault(`${why}; take that setting out`, [
      `sudo systemctl edit ${unit}`,
      `sudo systemctl restart ${unit}`,
    ])
  const copy = `sudo install -m 0640 -g ${SERVICE_USER} ${shellWord(found)} ${shellWord(own)}`
  return fault(`${why}; put the file where the unit sees it, and name that`, [copy])
}

/** Reports whether the modes let the daemon's user read the file and reach it. */
function isOpenToDaemon(path: string): boolean {
  const { uid, gid } = localUser(SERVICE_USER) ?? { uid: -1, gid: -1 }
  const gids = new Set([gid, ...groupsOf(SERVICE_USER)])
  const grants = (of: string, bits: number): boolean => {
    const stats = statSync(of)
    const shift = stats.uid === uid ? 6 : gids.has(stats.gid) ? 3 : 0
    return ((stats.mode >> shift) & bits) === bits
  }
  const isReached = (directory: string): boolean =>
    grants(directory, 1) && (directory === '/' || isReached(dirname(directory)))
  return grants(path, 4) && isReached(dirname(path))
}

function wordsOf(list = ''): string[] {
  return list.split(' ').filter((word) => word !== '')
}
