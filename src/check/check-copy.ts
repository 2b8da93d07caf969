// Examines from within the unit: systemd starts a copy of it once, which runs `check` in place of the daemon.
import {
  closeSync,
  constants,
  existsSync,
  openSync,
  readdirSync,
  readFileSync,
  realpathSync,
  rmSync,
  statSync,
  writeFileSync,
} from 'node:fs'
import { basename, join } from 'node:path'
import type { Readable } from 'node:stream'
import { serviceEnvironment } from '../host/account.ts'
import { exitStatus, UserError, withSystemFallback } from '../lib/error.ts'
import { fault, type Finding } from '../host/finding.ts'
import { readLimited } from '../lib/input.ts'
import { loadLibc } from '../lib/libc.ts'
import { SERVICE_USER, SYSTEM_CONFIG_DIRECTORY } from '../host/paths.ts'
import { groupsOf, localUser } from '../host/ids.ts'
import { shellWord } from '../lib/display-text.ts'
import { editUnit } from '../host/place-commands.ts'
import { runProgram } from '../lib/run-program.ts'
import { examine, type Examination, type ExamineRequest } from './check-examine.ts'
import { readChanged, type Unit } from './check-unit.ts'
import { firstLine, unitProperties } from '../host/systemd.ts'
import { failedStart } from '../host/why-not-running.ts'

/** The longest time for one examination, which may wait for the service. */
const EXAMINE_MS = 90_000
const UNITS = '/run/systemd/system'
const ANSWERS = '/run'
/** The name of a copy and of its answer, with the id of the process that made it. */
const OWN_NAME = /^kyc-tokend-check-(\d+)(?:@?\.service|\.json)$/

/** Settings of the copy: it starts once, makes and removes nothing, and has no socket. */
const COPY_SETTINGS = `
Type=oneshot
Restart=no
WatchdogSec=0
NotifyAccess=none
TimeoutStartSec=60
ExecCondition=
ExecStartPre=
ExecStartPost=
ExecReload=
ExecStop=
ExecStopPost=
ExecStart=
StateDirectory=
RuntimeDirectory=
CacheDirectory=
LogsDirectory=`

/**
 * Examines from within a copy of the unit, which systemd starts. Gives what that found, or the finding about
 * why systemd could not start it. No file of the copy stays, whatever ends this; what SIGKILL leaves the next call
 * removes.
 */
export async function examineInCopy(
  unit: Unit,
  request: ExamineRequest,
  signal: AbortSignal,
): Promise<{ examination: Examination } | { finding: Finding }> {
  const { name } = unit
  const { account } = request
  const systemctl = async (...words: string[]) => runProgram('systemctl', words, EXAMINE_MS)
  const { isOk, stdout: unitText, stderr } = await systemctl('cat', '--no-pager', `${name}.service`)
  if (!isOk) {
    // systemd still looks for a drop-in that was removed.
    const commands = unit.needsReload ? readChanged(name) : [`systemctl cat ${name}`]
    return { finding: fault(`systemd does not show ${name}.service (${firstLine(stderr)})`, commands) }
  }
  const ofProcess = `kyc-tokend-check-${process.pid}`
  const copy = account === undefined ? `${ofProcess}.service` : `${ofProcess}@${account}.service`
  const unitFile = join(UNITS, account === undefined ? copy : `${ofProcess}@.service`)
  const answerFile = join(ANSWERS, `${ofProcess}.json`)
  const stop = (): void => void systemctl('stop', copy)
  signal.addEventListener('abort', stop)
  await removeLeftCopies()
  try {
    writeFileSync(unitFile, copyOf(unitText, request, answerFile), { mode: 0o600 })
    const started = await systemctl('start', '--wait', copy)
    signal.throwIfAborted()
    const text = withSystemFallback('', () => readFileSync(answerFile, 'utf8'))
    if (started.isOk && text !== '') return { examination: JSON.parse(text) as Examination }
    return { finding: await whyNotStarted(unit, copy) }
  } finally {
    signal.removeEventListener('abort', stop)
    rmSync(unitFile, { force: true })
    rmSync(answerFile, { force: true })
    await systemctl('reset-failed', copy)
  }
}

/** Stops and removes the copies of processes that are gone. */
async function removeLeftCopies(): Promise<void> {
  const isLeft = (name: string): boolean => {
    const pid = Number(OWN_NAME.exec(name)?.[1] ?? process.pid)
    return pid !== process.pid && !existsSync(`/proc/${pid}`)
  }
  const leftIn = (directory: string): string[] =>
    withSystemFallback([], () => readdirSync(directory)).filter(isLeft)
  for (const name of leftIn(UNITS)) {
    // Of a template systemd finds the one that runs by a pattern.
    const copy = name.replace('@.', '@*.')
    await runProgram('systemctl', ['stop', copy], EXAMINE_MS)
    rmSync(join(UNITS, name), { force: true })
    await runProgram('systemctl', ['reset-failed', copy], EXAMINE_MS)
  }
  for (const name of leftIn(ANSWERS)) rmSync(join(ANSWERS, name), { force: true })
}

/** `unitText`: what systemctl cat says of the unit, whose dependencies would start other units. */
function copyOf(unitText: string, request: ExamineRequest, answerFile: string): string {
  let section = ''
  const service = unitText.split('\n').filter((line) => {
    if (/^\[.*\]\s*$/.test(line)) section = line.trim()
    return section === '[Service]' && !/^\s*(?:[#;]|Sockets=)/.test(line)
  })
  const { STATE_DIRECTORY } = serviceEnvironment(request.account)
  const quoted = (word: string): string =>
    `"${word.replaceAll(/["\\]/g, String.raw`\$&`).replaceAll('%', '%%')}"`
  const program = [process.execPath, '--jitless', realpathSync(process.argv[1] ?? ''), 'check']
  return [
    ...service,
    `[Service]${COPY_SETTINGS}`,
    `ReadWritePaths=-${STATE_DIRECTORY}`,
    `Environment=STATE_DIRECTORY=${STATE_DIRECTORY} ${REQUEST_VARIABLE}=1`,
    'StandardInput=data',
    `StandardInputData=${Buffer.from(JSON.stringify(request)).toString('base64')}`,
    `StandardOutput=file:${answerFile}`,
    `ExecStart=${program.map(quoted).join(' ')}`,
    '',
  ].join('\n')
}

async function whyNotStarted({ name }: Unit, copy: string): Promise<Finding> {
  const shown = (await unitProperties(copy, ['Result', 'ExecMainStatus'])) ?? {}
  const status = shown['ExecMainStatus'] ?? ''
  // The first one is of the process that was to run the program, the last one says that it failed.
  const words = ['-u', copy, '-o', 'cat', '-p', 'err', '--no-pager']
  const said = firstLine((await runProgram('journalctl', words, EXAMINE_MS)).stdout)
  const why = said === '' ? '' : ` (${said})`
  const known = failedStart(name, status)
  if (known === undefined) {
    const result =
      status === '0' || status === '' ? (shown['Result'] ?? 'no answer') : `exit status ${status}`
    return fault(`${name}.service cannot be started: ${result}${why}`, [`systemctl cat ${name}.service`])
  }
  return fault(`${known.text}${why}`, known.commands)
}

/** Set in the environment of the copy. */
export const REQUEST_VARIABLE = 'KYC_TOKEND_EXAMINE'

/** The other side: examines as the request on the standard input says, and gives the result as JSON. */
export async function answerRequest(
  stdin: Readable,
  { env, signal }: { env: NodeJS.ProcessEnv; signal: AbortSignal },
): Promise<string> {
  // It runs as the daemon's user: no other process of that may read the secrets in its memory.
  loadLibc().forbidDumps()
  const bytes = await readLimited(stdin as AsyncIterable<Buffer>, { maxBytes: 1_048_576 })
  if (bytes === undefined) throw new UserError('The request is too long.', exitStatus.usage)
  const request = JSON.parse(bytes.toString()) as ExamineRequest
  return JSON.stringify(await examine(request, { env, isElsewhere: false, isUnit: true, signal }))
}

/** Makes a directory that every unit sees. */
export const MAKE_BELOW_SRV = `sudo install -d -m 2750 -o ${SERVICE_USER} -g kyc-token /srv/kyc-tokend`

/**
 * A finding of the copy, as this process sees the path, which is root outside of the sandbox: it tells who
 * hides it.
 */
export function asSeenOutside(finding: Finding, unit: string): Finding {
  const { hidden } = finding
  if (hidden === undefined || finding.level !== 'fault') return finding
  const found = withSystemFallback(null, () => realpathSync(hidden.path))
  // Else it is nowhere, or modes keep the daemon from it, as the finding says.
  const isHiddenByUnit = found !== null && (hidden.isAbsent || found !== hidden.path || isOpenToDaemon(found))
  if (!isHiddenByUnit) return finding
  const link = found === hidden.path ? '' : `, a link to ${found}`
  const settings = 'a setting such as ProtectHome=, PrivateTmp= or InaccessiblePaths= may hide it'
  const shown = `which systemctl cat ${unit} shows`
  const why = `${unit}.service does not see ${hidden.path}${link} (${settings}, ${shown})`
  if (statSync(found).isDirectory())
    return fault(`${why}; set another directory, such as one below /srv`, [MAKE_BELOW_SRV])
  const inSystem = join(SYSTEM_CONFIG_DIRECTORY, basename(found))
  return found === inSystem
    ? fault(`${why}; take that setting out`, editUnit(unit))
    : fault(`${why}; put the file where the unit sees it, and name that`, [
        `sudo install -m 0640 -g ${SERVICE_USER} ${shellWord(found)} ${shellWord(inSystem)}`,
      ])
}

function isOpenToDaemon(path: string): boolean {
  const user = localUser(SERVICE_USER)
  const end = user && becomeServiceUser(user)
  const isOpen = withSystemFallback(false, () => {
    closeSync(openSync(path, constants.O_RDONLY | constants.O_NONBLOCK))
    return true
  })
  end?.()
  return isOpen
}

/** Acts as the daemon's user until the function that it gives is called: so the kernel itself decides. */
export function becomeServiceUser({ uid, gid }: { uid: number; gid: number }): () => void {
  const before = { groups: process.getgroups!(), gid: process.getegid!() }
  process.setgroups!([gid, ...groupsOf(SERVICE_USER)])
  process.setegid!(gid)
  process.seteuid!(uid)
  return () => {
    process.seteuid!(0)
    process.setegid!(before.gid)
    process.setgroups!(before.groups)
  }
}
