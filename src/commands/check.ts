// `kyc-tokend check`: every fault of configuration, permissions, directories, sockets and host, each with its remedy.
import { dirname } from 'node:path'
import { styleText } from 'node:util'

import type { Config } from '../config/config.ts'
import { tellFault } from '../config/faults.ts'
import { inspectConfig, type Inspection } from '../config/load.ts'
import { createSystemClock } from '../lib/clock.ts'
import { tellDuration } from '../lib/duration.ts'
import { exitStatus } from '../lib/error.ts'
import { isLoopbackHost } from '../lib/loopback.ts'
import type { createFetchToken } from '../source/fetch-token.ts'
import type { FetchOutcome } from '../token/outcome.ts'
import { remedyFor } from '../token/remedy.ts'
import { jwtLifeMs } from '../token/token.ts'
import { directoryFinding, socketFinding, type Finding } from './check-places.ts'
import type { Invocation, RunCommand } from './command.ts'
import { asServiceUser, SERVICE_USER } from './service-user.ts'

/** A wall clock that is off by more than this is told. */
const CLOCK_OFF_MS = 60_000

export const run: RunCommand = async (invocation) => {
  const report = createReport(invocation.stdout)
  const configPath = invocation.options['config'] as string | undefined
  const isWhole = invocation.options['config-only'] !== true
  const live = invocation.options['live'] === true ? await import('../source/fetch-token.ts') : undefined
  let status: number = exitStatus.ok
  const config = await asServiceUser(invocation.env, {
    // Loads whatever judging a configuration needs.
    prepare: () => inspectConfig({ configPath, env: invocation.env }),
    act: async (viewpoint) => {
      if (viewpoint.isElsewhere)
        report.say('judge', { level: 'ok', sentence: `judged as the user ${SERVICE_USER}` })
      const inspection = await inspectConfig({ configPath, ...viewpoint })
      report.say('configuration', ...configFindings(inspection))
      if (inspection.config === undefined) return undefined
      if (isWhole) await judgePlaces(inspection.config, report)
      if (live !== undefined) {
        const { signal } = invocation
        const answer = await askOnce(inspection.config, {
          ...live,
          unseen: inspection.unseen,
          env: viewpoint.env,
          signal,
        })
        report.say('service', ...answer.findings)
        status = answer.status
      }
      return inspection.config
    },
  })
  if (config !== undefined && isWhole) await judgeHost(config, report)
  report.end()
  return report.faults() > 0 ? exitStatus.configuration : status
}

function configFindings({ file, faults, warnings }: Inspection): Finding[] {
  return [
    ...faults.map((fault) => ({ level: 'fault' as const, sentence: tellFault(fault) })),
    ...warnings.map((warning) => ({ level: 'warning' as const, sentence: tellFault(warning) })),
    ...(faults.length === 0 ? [{ level: 'ok' as const, sentence: `${file} is valid` }] : []),
  ]
}

async function judgePlaces(config: Config, report: Report): Promise<void> {
  const { runtimeDirectory, stateDirectory, ipc, http } = config
  report.say(
    'directories',
    directoryFinding(runtimeDirectory, { purpose: 'runtime directory', isMadeByDaemon: true }),
    directoryFinding(stateDirectory, { purpose: 'state directory', isMadeByDaemon: true }),
    ...furtherDirectories(config).map((path) =>
      directoryFinding(path, { purpose: 'directory', isMadeByDaemon: false }),
    ),
  )
  report.say('sockets', await socketFinding(ipc.path, 'node-ipc'))
  if (http !== null) report.say('sockets', await socketFinding(http.path, 'HTTP'))
}

async function judgeHost(config: Config, report: Report): Promise<void> {
  const { hostFindings } = await import('../report/host.ts')
  const findings = await hostFindings({
    directories: [config.runtimeDirectory, config.stateDirectory, ...furtherDirectories(config)],
    isServiceLocal: isLoopbackHost(new URL(config.baseUrl).hostname),
    nowMs: Date.now(),
  })
  report.say('host', ...findings)
}

/** Directories that are written to and that the daemon does not make. */
function furtherDirectories({ runtimeDirectory, stateDirectory, tokenFiles, ipc, http }: Config): string[] {
  const written = [...tokenFiles, ipc, ...(http === null ? [] : [http])].map(({ path }) => dirname(path))
  return [...new Set(written)].filter((path) => path !== runtimeDirectory && path !== stateDirectory)
}

interface Answer {
  readonly findings: readonly Finding[]
  /** Exit status. */
  readonly status: number
}

/** Asks the service for a token once, and says what came of it. The token is dropped. */
async function askOnce(
  config: Config,
  options: {
    createFetchToken: typeof createFetchToken
    unseen: readonly string[]
    env: NodeJS.ProcessEnv
    signal: AbortSignal
  },
): Promise<Answer> {
  const { unseen, env, signal } = options
  if (unseen.length > 0) {
    const sentence = `cannot be asked from here, because only the service sees ${unseen.join(' and ')}: ask with "kyc-tokend refresh"`
    return { findings: [{ level: 'warning', sentence }], status: exitStatus.tryAgain }
  }
  const clock = createSystemClock()
  const fetchToken = options.createFetchToken({ ...config, env, clock, secrets: () => [] })
  return judgeOutcome(await fetchToken(signal), clock.now().wallMs)
}

function judgeOutcome(outcome: FetchOutcome, wallMs: number): Answer {
  if (outcome.kind !== 'ok') {
    const sentence = `gave no token (${outcome.reason}): ${outcome.detail}. ${remedyFor(outcome.reason)}.`
    const status = outcome.kind === 'permanent' ? exitStatus.noPermission : exitStatus.tryAgain
    return { findings: [{ level: 'warning', sentence }], status }
  }
  const { accessToken, serverDateMs } = outcome
  const lifeMs = jwtLifeMs(accessToken, { serverDateMs, wallMs })
  if (lifeMs !== undefined && lifeMs <= 0) {
    const sentence = `gave a token that has expired already. ${remedyFor('malformed-answer')}.`
    return { findings: [{ level: 'warning', sentence }], status: exitStatus.tryAgain }
  }
  const lives = lifeMs === undefined ? 'does not say how long it lives' : `lives ${tellDuration(lifeMs)}`
  const given: Finding = { level: 'ok', sentence: `gave a token that ${lives}` }
  return { findings: [given, ...clockFindings(serverDateMs, wallMs)], status: exitStatus.ok }
}

function clockFindings(serverDateMs: number | undefined, wallMs: number): Finding[] {
  if (serverDateMs === undefined || Math.abs(wallMs - serverDateMs) < CLOCK_OFF_MS) return []
  const off = `${tellDuration(Math.abs(wallMs - serverDateMs))} ${wallMs > serverDateMs ? 'ahead of' : 'behind'}`
  const sentence = `the clock is ${off} the service's: set it (timedatectl set-ntp true)`
  return [{ level: 'warning', sentence }]
}

interface Report {
  say(subject: string, ...findings: readonly Finding[]): void
  faults(): number
  /** Says how it went, in one line. */
  end(): void
}

const LOOKS = {
  ok: { mark: 'ok     ', style: 'green' },
  warning: { mark: 'warning', style: 'yellow' },
  fault: { mark: 'FAULT  ', style: 'red' },
} as const

/** One line for each finding; in colour where a person looks at a terminal. */
function createReport(stdout: Invocation['stdout']): Report {
  const counts = { ok: 0, warning: 0, fault: 0 }
  return {
    say(subject, ...findings) {
      for (const { level, sentence } of findings) {
        counts[level] += 1
        const mark = styleText(LOOKS[level].style, LOOKS[level].mark, { stream: stdout })
        stdout.write(`${mark}  ${subject.padEnd(13)}  ${sentence}\n`)
      }
    },
    faults: () => counts.fault,
    end() {
      const warnings = counts.warning === 0 ? '' : `, ${counted(counts.warning, 'warning')}`
      stdout.write(`\n${counts.fault === 0 ? 'No fault' : counted(counts.fault, 'fault')}${warnings}.\n`)
    },
  }
}

function counted(count: number, noun: string): string {
  return `${count} ${noun}${count === 1 ? '' : 's'}`
}
