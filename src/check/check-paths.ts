// The daemon's paths as root sees them: what differs from the table, and whether a member of the group can
// connect and read.
import { lstatSync, statSync } from 'node:fs'
import { dirname } from 'node:path'
import { SETGID } from '../files/fs.ts'
import { accessListOf } from '../lib/access-list.ts'
import { withSystemFallback } from '../lib/error.ts'
import { fault, ok, type Finding } from '../host/finding.ts'
import { differenceOf, pathTable, type SocketFacts } from '../host/path-table.ts'
import { isSystemDirectory, SERVICE_USER } from '../host/paths.ts'
import { idOf, localUser, nameOf } from '../host/ids.ts'
import { shellWord } from '../lib/display-text.ts'
import { remakeSockets, sudoAt, type Place, type Remedy } from '../host/remedy.ts'
import { runProgram } from '../lib/run-program.ts'
import type { LookedConfig } from './check-look.ts'
import type { Unit } from './check-unit.ts'

const ASK_MS = 10_000
/** Below the id that stands for unknown users. */
const LAST_FREE_ID = 65_533

/**
 * `unit`: the one that runs the daemon; null: there is none. The members' questions are asked by root
 * alone.
 */
export async function pathFindings(
  config: LookedConfig,
  unit: Unit | null,
  place: Place,
): Promise<Finding[]> {
  const user = unit === null ? { uid: process.geteuid!() } : localUser(SERVICE_USER)
  // That the user is missing keeps the unit from starting, which is a finding already.
  if (user === undefined) return []
  const sockets =
    unit === null
      ? config.sockets.map(({ path, mode, gid }) => ({ path, mode, gid, uid: user.uid }))
      : await socketsOfUnit(config, unit)
  const clients = sockets.find(({ gid }) => gid !== null)?.gid ?? null
  const rows = pathTable({ ...config, sockets }, { uid: user.uid, clients }, place)
  const compared = rows.map(async (row) => {
    const stats = withSystemFallback(null, () => lstatSync(row.path))
    const list = row.writer === null ? null : await accessListOf(row.path)
    const difference = differenceOf(row, { stats, list })
    return difference === undefined ? [] : [{ path: row.path, ...difference }]
  })
  const different = (await Promise.all(compared)).flat()
  const findings = different.map(({ text, commands }) => fault(text, commands))
  if (process.geteuid!() !== 0) return findings
  const questions = questionsOf(config, { sockets, clients, isAnswering: unit?.isActive ?? false })
  const answers = await memberFindings(questions, { place, different })
  return [...findings, ...answers]
}

/** The sockets that systemd listens at, as their units say. */
async function socketsOfUnit(config: LookedConfig, unit: Unit): Promise<SocketFacts[]> {
  const used = unit.sockets.filter(
    ({ path, state }) => state === 'active' && config.sockets.some((socket) => socket.path === path),
  )
  return Promise.all(
    used.map(async ({ path, mode, user, group }) => ({
      path,
      mode,
      uid: (await idOf('user', user)) ?? null,
      gid: (await idOf('group', group)) ?? null,
    })),
  )
}

/** A path that differs from the table. */
type Different = Remedy & { readonly path: string }

interface Question {
  readonly path: string
  readonly use: 'connect' | 'reach' | 'read'
  readonly gid: number
}

/** `reach`: nothing is connected to, because that would start the daemon. */
function questionsOf(
  { tokenFiles, runtimeDirectory }: LookedConfig,
  on: { sockets: readonly SocketFacts[]; clients: number | null; isAnswering: boolean },
): Question[] {
  const use = on.isAnswering ? 'connect' : 'reach'
  const connecting = on.sockets.flatMap(({ path, gid, mode }) =>
    gid === null || ((mode ?? 0) & 0o060) !== 0o060 ? [] : [{ path, use, gid } as const],
  )
  const reading = tokenFiles.flatMap(({ path, mode, gid }) => {
    if ((mode & 0o044) === 0) return []
    const directory = withSystemFallback(null, () => statSync(dirname(path)))
    const inherited = directory !== null && (directory.mode & SETGID) !== 0 ? directory.gid : null
    const reader = gid ?? (dirname(path) === runtimeDirectory ? on.clients : inherited)
    return reader === null ? [] : [{ path, use: 'read', gid: reader } as const]
  })
  return [...connecting, ...reading]
}

/** The answer of the child to a question: what forbids it, and where; null: nothing. */
type Denial = { readonly code: string; readonly at: string } | null

async function memberFindings(
  questions: readonly Question[],
  on: { place: Place; different: readonly Different[] },
): Promise<Finding[]> {
  const gids = [...new Set(questions.map(({ gid }) => gid))]
  const findings = await Promise.all(
    gids.map(async (gid) => {
      const asked = questions.filter((question) => question.gid === gid)
      const words = ['--jitless', '-e', MEMBER, JSON.stringify(asked)]
      const { stdout } = await runProgram(process.execPath, words, ASK_MS, { uid: freeId(), gid })
      if (stdout === '') return []
      const denials = JSON.parse(stdout) as Denial[]
      return asked.map((question, index) => memberFinding(question, denials[index] ?? null, on))
    }),
  )
  return findings.flat()
}

/** Runs as a member of the group. Its argument is questions, its output the answers to them, as JSON. */
const MEMBER = `
const fs = require('node:fs'), { connect } = require('node:net'), { dirname } = require('node:path')
const above = (path) => (path === '/' ? ['/'] : [...above(dirname(path)), path])
async function ask({ path, use }) {
  for (const directory of above(dirname(path))) {
    try { fs.accessSync(directory, fs.constants.X_OK) } catch ({ code }) { return { code, at: directory } }
  }
  try { fs.accessSync(path, use === 'read' ? fs.constants.R_OK : fs.constants.W_OK) }
  catch ({ code }) { return use === 'read' && code === 'ENOENT' ? null : { code, at: path } }
  if (use !== 'connect') return null
  return new Promise((resolve) => {
    const socket = connect(path, () => { socket.destroy(); resolve(null) })
    socket.once('error', ({ code }) => resolve({ code, at: path }))
  })
}
Promise.all(JSON.parse(process.argv[1]).map(ask))
  .then((answers) => process.stdout.write(JSON.stringify(answers)))
`

function freeId(): number {
  let id = LAST_FREE_ID
  while (nameOf('user', id) !== String(id)) id -= 1
  return id
}

function memberFinding(
  { path, use, gid }: Question,
  denial: Denial,
  { place, different }: { place: Place; different: readonly Different[] },
): Finding {
  const member = `a member of ${nameOf('group', gid)}`
  const does = use === 'read' ? `read ${path}` : `connect to ${path}`
  if (denial === null) return ok(`${member} can ${does}`)
  const { code, at } = denial
  const sentence = `${member} cannot ${does} (${code} at ${at})`
  const row = different.find((each) => each.path === at || each.path === dirname(path))
  // A file keeps its group, and the daemon makes it again.
  const again = use === 'read' && at === path ? [`${sudoAt(place)}rm ${shellWord(path)}`] : []
  if (row !== undefined) return fault(sentence, [...row.commands, ...again])
  if (again.length > 0) return fault(sentence, again)
  if (at === path) return fault(sentence, place.isUnit ? remakeSockets(place.account) : [])
  return isSystemDirectory(at)
    ? fault(`${sentence}: set a path elsewhere, such as in the runtime directory`)
    : fault(sentence, [`${sudoAt(place)}chmod o+x ${shellWord(at)}`])
}
