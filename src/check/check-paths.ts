// The daemon's paths as root sees them: what differs from the table, and what is mounted over them.
import { lstatSync, readFileSync } from 'node:fs'
import { accessListOf } from '../lib/access-list.ts'
import { withSystemFallback } from '../lib/error.ts'
import { fault, type Finding } from '../host/finding.ts'
import {
  clientGroups,
  differenceOf,
  isRuntimeOfUnit,
  pathTable,
  type SocketFacts,
} from '../host/path-table.ts'
import { SERVICE_USER } from '../host/paths.ts'
import { idOf, localUser } from '../host/ids.ts'
import { shellWord } from '../lib/display-text.ts'
import { bindSockets, sudoAt, type Place } from '../host/place-commands.ts'
import { memberFindings, questionsOf } from './check-members.ts'
import type { ExaminedConfig } from './check-examine.ts'
import type { Unit } from './check-unit.ts'

/**
 * `unit`: the one that runs the daemon; null: there is none. The members' questions are asked by root
 * alone.
 */
export async function pathFindings(
  config: ExaminedConfig,
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
  const clients = await clientGroups(sockets, place)
  const rows = pathTable(
    { ...config, sockets },
    { uid: user.uid, clients },
    { ...place, isRunning: unit?.isActive ?? false },
  )
  const compared = rows.map(async (row) => {
    const stats = withSystemFallback(null, () => lstatSync(row.path))
    const list = row.writer === null ? null : await accessListOf(row.path)
    const difference = differenceOf(row, { stats, list })
    return difference === undefined ? [] : [{ path: row.path, ...difference }]
  })
  const different = (await Promise.all(compared)).flat()
  const over = mountFindings(config.runtimeDirectory, place)
  // What is mounted over the directory is what differs from the table.
  const findings = over.length > 0 ? over : different.map(({ text, commands }) => fault(text, commands))
  if (process.geteuid!() !== 0) return findings
  const questions = questionsOf(config, { sockets, clients, isAnswering: unit?.isActive ?? false })
  const answers = await memberFindings(questions, { place, different })
  return [...findings, ...answers]
}

/** The sockets that systemd listens at, as their units say. */
async function socketsOfUnit(config: ExaminedConfig, unit: Unit): Promise<SocketFacts[]> {
  const facts = unit.sockets.map(async ({ path, state, mode, user, group }) => {
    const isUsed = config.sockets.some((socket) => socket.path === path)
    if (path === null || state !== 'active' || !isUsed) return []
    return [
      {
        path,
        mode,
        uid: (await idOf('user', user)) ?? null,
        gid: group === null ? null : ((await idOf('group', group)) ?? null),
      },
    ]
  })
  return (await Promise.all(facts)).flat()
}

/** What is mounted over the runtime directory hides its sockets from all who do not see it from below. */
function mountFindings(runtimeDirectory: string, place: Place): Finding[] {
  const lines = withSystemFallback('', () => readFileSync('/proc/self/mountinfo', 'utf8')).split('\n')
  const points = lines.map((line) => line.split(' ')[4])
  // Nothing is ever mounted at that of the unit.
  if (!points.includes(runtimeDirectory) || !isRuntimeOfUnit(runtimeDirectory, place)) return []
  const sentence = `something is mounted over ${runtimeDirectory}, so that clients do not reach its sockets`
  // Lazy, because programs use it.
  const unmount = `${sudoAt(place)}umount --lazy ${shellWord(runtimeDirectory)}`
  return [fault(sentence, [unmount, ...bindSockets(place.account)])]
}
