// The one table about the host: the findings of each subject, made of the facts.
import { CLIENTS_GROUP, SERVICE_USER } from '../host/paths.ts'
import { isFaultName, withCommands } from '../host/remedy.ts'
import { shellWord } from '../lib/display-text.ts'
import { isActive, isMasked, type HostFacts } from './host.ts'

export interface Finding {
  /** `failure`: the service gave no token, which is no fault of this host. */
  readonly level: 'ok' | 'warning' | 'fault' | 'failure'
  /** Without a full stop, with the commands that cure it or show more. */
  readonly sentence: string
  /** If there is no fault; undefined: 0. */
  readonly exitStatus?: number
}

const MIB = 1024 * 1024
/** A clock that shows an earlier time was never set. */
const EARLIEST_MS = Date.UTC(2026, 0, 1)

const finding =
  (level: Finding['level']) =>
  (...words: Parameters<typeof withCommands>): Finding => ({ level, sentence: withCommands(...words) })
const ok = finding('ok')
const warning = finding('warning')
const fault = finding('fault')

/** In the order in which a person acts. Without an installed service there is nothing about units. */
export const hostRows: Readonly<Record<string, (facts: HostFacts) => Iterable<Finding>>> = {
  *unit({ service, others, units, complaints, words, remedies: { commands } }) {
    for (const { name } of units.filter(isMasked))
      yield fault(`${name} is masked`, `sudo systemctl unmask ${name}`, commands.rebind)
    for (const { name } of units.filter(({ properties }) => properties['NeedDaemonReload'] === 'yes')) {
      const sentence = `${name} changed on disk, and systemd has not read that yet`
      yield warning(sentence, 'sudo systemctl daemon-reload', commands.restart)
    }
    for (const line of complaints) yield warning(`systemd says: ${line}`)
    if (words !== null) yield fault(`the service does not run. ${words}`, commands.log, commands.rebind)
    const isUsed =
      service !== null && (isActive(service) || service.properties['UnitFileState'] === 'enabled')
    for (const unit of isUsed ? others : []) {
      if (isActive(unit) || isMasked(unit)) continue
      const { ActiveState, Result } = unit.properties
      yield fault(`${unit.name} is ${ActiveState} (${Result})`, commands.rebind)
    }
  },

  *users({ missing, remedies: { commands } }) {
    for (const name of missing) {
      const isOwn = [SERVICE_USER, CLIENTS_GROUP].includes(name)
      const cure = isOwn ? ['sudo systemd-sysusers kyc-tokend.conf', commands.rebind] : []
      const make = 'make it, add its members again, or correct the drop-in that names it'
      yield fault(`there is no user or group ${name}; ${make}`, ...cure)
    }
  },

  *directories({ mounts, remedies: { commands } }) {
    for (const mount of mounts) {
      const sentence = `a file system is mounted over ${mount}, and hides the sockets below`
      yield fault(sentence, `sudo umount ${shellWord(mount)}`, commands.rebind)
    }
  },

  *sockets({ others, sockets, group, status, remedies: { commands, remedyOf } }) {
    for (const { name, properties } of others) {
      const { SocketGroup = '' } = properties
      if (SocketGroup === '' || SocketGroup === group) continue
      const sentence = `${name} has SocketGroup=${SocketGroup}, and its service Group=${group}`
      const why = `members of one alone get the token; write SocketGroup=${group} below [Socket]`
      yield fault(`${sentence}: ${why}`, `sudo systemctl edit ${name}`, commands.rebind)
    }
    for (const problem of status?.daemon.pathProblems ?? []) yield fault(problem)
    for (const { path, isOpenedWide, unanswered } of sockets) {
      if (isOpenedWide) yield fault(remedyOf({ fault: 'open-socket', path }))
      if (unanswered === null) yield ok(`${path} answers`)
      if (unanswered === 'closed') yield fault(`no answer at ${path}: ${remedyOf('unanswered')}`)
      else if (unanswered) {
        const cure = unanswered === 'timeout' ? commands.restart : commands.rebind
        yield fault(`a member of ${group} gets no answer at ${path} (${unanswered})`, cure)
      }
    }
  },

  *host({ nowMs, isClockSynchronised, disks, memory }) {
    const shown = `the clock says ${new Date(nowMs).toISOString()}`
    if (isClockSynchronised && nowMs >= EARLIEST_MS) yield ok(`${shown}, and Node is ${process.version}`)
    else yield warning(`${shown}, and is not synchronised; switch that on`, 'sudo timedatectl set-ntp true')
    for (const { mount, available } of disks)
      if (available < MIB)
        yield fault(`the file system at ${mount} is full: free space on it`, `df -h ${shellWord(mount)}`)
    if (memory < 64 * MIB)
      yield warning(`only ${Math.floor(memory / MIB)} MiB of memory are free: stop what is not needed`)
  },

  *daemon({ status, remedies: { remedyOf } }) {
    if (status === null) return
    const { files, state, failure, alert, daemon } = status
    for (const { error } of files) if (error !== null) yield fault(error)
    if (daemon.stateProblem) yield fault(`the state for a restart cannot be saved: ${daemon.stateProblem}`)
    const reason = failure?.reason ?? 'no-token'
    const remedy = alert?.remedy ?? (isFaultName(reason) ? remedyOf(reason) : reason)
    if (state !== 'ready') yield warning(`it is ${state}: ${remedy}`)
  },

  /** Faults on disk have been said already. */
  *configuration({ status, remedies: { commands } }) {
    if (status === null) return
    const { state, problem, pair } = status.daemon.configuration
    const former = 'the daemon runs with a former configuration'
    const say = pair === 'refused' ? fault : warning
    if (pair !== undefined) yield say(problem ?? 'the pair in the files is not in use', commands.refresh)
    else if (state === 'changed' && problem === null) yield warning(former, commands.reload)
    else if (state === 'changed') yield warning(`${former}: ${problem}`, commands.restart)
  },
}
