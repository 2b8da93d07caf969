// The question that decides: a process with a free user id and the clients' group asks each socket for a status,
// and reads each token file. That systemd takes a connection is no answer.
import { statSync } from 'node:fs'
import { dirname } from 'node:path'
import { SETGID } from '../files/fs.ts'
import { withSystemFallback } from '../lib/error.ts'
import { fault, ok, warning, type Finding } from '../host/finding.ts'
import type { SocketFacts } from '../host/path-table.ts'
import { isSystemDirectory } from '../host/paths.ts'
import { nameOf } from '../host/ids.ts'
import { shellWord } from '../lib/display-text.ts'
import { commandsAt, remakeSockets, sudoAt, type Place, type Remedy } from '../host/place-commands.ts'
import { runProgram } from '../lib/run-program.ts'
import { firstLine } from '../host/systemd.ts'
import type { ExaminedConfig } from './check-examine.ts'

/** A daemon that serves answers within milliseconds. */
const ANSWER_WITHIN_MS = 5_000
const ASK_MS = 2 * ANSWER_WITHIN_MS
/** Below the id that stands for unknown users. */
const LAST_FREE_ID = 65_533

/** A path that differs from the table. */
type Different = Remedy & { readonly path: string }

/**
 * How a socket is asked for a status, by its protocol; how an answer begins, one that `allow` denies, and how
 * the part ends that says so.
 */
const STATUS_REQUESTS = {
  ipc: {
    request: '{"type":"status.get","data":{"id":"check"}}\f',
    answer: '{',
    denied: '"code":"denied"',
    end: '\f',
  },
  http: {
    request: 'GET /v1/status HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n',
    answer: 'HTTP/1.1 ',
    denied: 'HTTP/1.1 403 ',
    end: '\r\n',
  },
} as const
/** Longer than each answer that denies. */
const MAX_DENIAL = 4_096

interface Question {
  readonly path: string
  readonly use: 'ask' | 'reach' | 'read'
  readonly gid: number
  readonly words?: (typeof STATUS_REQUESTS)[keyof typeof STATUS_REQUESTS]
}

/** `reach`: nothing is connected to, because that would start the daemon. */
export function questionsOf(
  { tokenFiles, runtimeDirectory, sockets: [ipc] }: ExaminedConfig,
  {
    sockets,
    clients,
    isAnswering,
  }: { sockets: readonly SocketFacts[]; clients: readonly number[]; isAnswering: boolean },
): Question[] {
  const use = isAnswering ? 'ask' : 'reach'
  const connecting = sockets.flatMap(({ path, gid, mode }) =>
    gid === null || ((mode ?? 0) & 0o060) !== 0o060
      ? []
      : [{ path, use, gid, words: STATUS_REQUESTS[path === ipc?.path ? 'ipc' : 'http'] } as const],
  )
  const reading = tokenFiles.flatMap(({ path, mode, gid }) => {
    if ((mode & 0o044) === 0) return []
    const directory = withSystemFallback(null, () => statSync(dirname(path)))
    const inherited = directory !== null && (directory.mode & SETGID) !== 0 ? directory.gid : undefined
    // That its group is a wrong one is found, too.
    const isClients = dirname(path) !== runtimeDirectory || clients.includes(inherited ?? -1)
    const reader = gid ?? (isClients ? inherited : clients[0])
    return reader === undefined ? [] : [{ path, use: 'read', gid: reader } as const]
  })
  return [...connecting, ...reading]
}

/** The answer of the child to a question: what forbids it, and where; null: nothing. */
type Denial = { readonly code: string; readonly path: string } | null

export async function memberFindings(
  questions: readonly Question[],
  context: { place: Place; different: readonly Different[] },
): Promise<Finding[]> {
  const gids = [...new Set(questions.map(({ gid }) => gid))]
  const findings = await Promise.all(
    gids.map(async (gid) => {
      const asked = questions.filter((question) => question.gid === gid)
      const words = ['--jitless', '-e', MEMBER, JSON.stringify(asked)]
      const { execPath } = process
      const { stdout, stderr } = await runProgram(execPath, words, ASK_MS, { uid: freeId(), gid })
      if (stdout === '') {
        const paths = asked.map(({ path }) => path).join(' and ')
        const why = `a member of ${nameOf('group', gid)} cannot be asked about ${paths} (${firstLine(stderr)})`
        return [warning(`${why}: see that every user can run ${execPath}`)]
      }
      const denials = JSON.parse(stdout) as Denial[]
      return asked.map((question, index) => memberFinding(question, denials[index] ?? null, context))
    }),
  )
  return findings.flat()
}

/** Runs as a member of the group. Its argument is questions, its output the answers to them, as JSON. */
const MEMBER = `
const fs = require('node:fs'), { connect } = require('node:net'), { dirname } = require('node:path')
const above = (path) => (path === '/' ? ['/'] : [...above(dirname(path)), path])
async function ask({ path, use, words }) {
  for (const directory of above(dirname(path))) {
    try { fs.accessSync(directory, fs.constants.X_OK) } catch ({ code }) { return { code, path: directory } }
  }
  try { fs.accessSync(path, use === 'read' ? fs.constants.R_OK : fs.constants.W_OK) }
  catch ({ code }) { return use === 'read' && code === 'ENOENT' ? null : { code, path } }
  if (use !== 'ask') return null
  return new Promise((resolve) => {
    const socket = connect(path, () => socket.write(words.request))
    const end = (answer) => { resolve(answer); socket.destroy() }
    let text = ''
    socket.setEncoding('utf8').on('data', (part) => {
      text += part
      if (!text.includes(words.end) && text.length < ${MAX_DENIAL}) return
      if (!text.startsWith(words.answer)) end({ code: 'no answer of a daemon', path })
      else end(text.split(words.end, 1)[0].includes(words.denied) ? { code: 'denied', path } : null)
    })
    socket.once('end', () => end({ code: 'closed without an answer', path }))
    socket.once('error', ({ code }) => end({ code, path }))
    setTimeout(() => end({ code: 'no answer within ${ANSWER_WITHIN_MS / 1_000} s', path }), ${ANSWER_WITHIN_MS}).unref()
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
  const does = { read: `read ${path}`, reach: `connect to ${path}`, ask: `ask ${path}` }[use]
  if (denial === null) return ok(`${member} can ${does}${use === 'ask' ? ', and is answered' : ''}`)
  if (denial.code === 'denied') return ok(`${path} answers, and \`allow\` says who takes the token there`)
  const { code, path: where } = denial
  const sentence = `${member} cannot ${does} (${code} at ${where})`
  // systemd took the connection, or the daemon is over a limit.
  if (code.startsWith('no answer')) return fault(sentence, commandsAt('restart', place))
  if (code.startsWith('closed'))
    return fault(`${sentence}: \`maxConnections\` or \`maxConnectionsPerUser\` of that socket is reached`)
  const row = different.find((each) => each.path === where || each.path === dirname(path))
  // A file keeps its group, and the daemon makes it again.
  const again = use === 'read' && where === path ? [`${sudoAt(place)}rm ${shellWord(path)}`] : []
  if (row !== undefined) return fault(sentence, [...row.commands, ...again])
  if (again.length > 0) return fault(sentence, again)
  if (where === path) return fault(sentence, place.isUnit ? remakeSockets(place.account) : [])
  return isSystemDirectory(where)
    ? fault(
        `${sentence}: ${where} is the system's, and others pass through it (0755) unless somebody changed that`,
      )
    : fault(sentence, [`${sudoAt(place)}chmod o+x ${shellWord(where)}`])
}
