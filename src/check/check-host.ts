// The host: conditions that break a daemon like this one (clock, network, disk, memory).
import { isLoopbackHost } from '../config/base-url.ts'
import { nearestThere } from '../host/file-remedy.ts'
import { sleep, withTimeout } from '../lib/clock.ts'
import { fault, ok, SET_CLOCK, warning, type Finding } from '../host/finding.ts'
import { runProgram } from '../lib/run-program.ts'
import type { ExaminedConfig } from './check-examine.ts'

/** The longest wait for programs, also those that systeminformation runs: on a broken host they may hang. */
const ASK_MS = 3_000
/** A clock that shows an earlier time was never set. */
const EARLIEST_WALL_MS = Date.UTC(2026, 0, 1)
const MIB = 1024 * 1024
const DISK = { fullBytes: 256 * 1024, scarceBytes: 8 * MIB }
const SCARCE_MEMORY_BYTES = 64 * MIB

/**
 * Examines the host, with the file systems of the directories that the daemon writes to; for a missing one,
 * the nearest above it is examined.
 */
export async function hostFindings(
  config: Pick<ExaminedConfig, 'directories' | 'baseUrl'>,
): Promise<Finding[]> {
  const { default: system } = await import('systeminformation')
  /** Undefined: there is no answer in time, and so no finding. */
  const ask = async <T>(question: Promise<T>): Promise<T | undefined> =>
    withTimeout(
      ASK_MS,
      question.catch(() => undefined),
      { sleep },
    )
  // A service on this host needs no network.
  const isServiceLocal = isLoopbackHost(new URL(config.baseUrl).hostname)
  const [clock, gateway, fileSystems, memory] = await Promise.all([
    clockFinding(system.time().current),
    isServiceLocal ? undefined : ask(system.networkGatewayDefault()),
    ask(system.fsSize()),
    ask(system.mem()),
  ])
  const directories = new Set(config.directories.map(({ path }) => nearestThere(path)))
  return [
    clock,
    ...(gateway === undefined ? [] : [networkFinding(gateway)]),
    ...diskFindings(fileSystems ?? [], [...directories]),
    ...(memory === undefined ? [] : [memoryFinding(memory.available)]),
  ]
}

async function clockFinding(nowMs: number): Promise<Finding> {
  const shown = new Date(nowMs).toISOString()
  if (nowMs < EARLIEST_WALL_MS)
    return fault(`the clock says ${shown}, which is long past; have it set`, SET_CLOCK)
  // The output is `yes` or `no`; without systemd, something else.
  const words = ['show', '--property=NTPSynchronized', '--value']
  const { stdout } = await runProgram('timedatectl', words, ASK_MS)
  if (stdout.trim() === 'no') return warning('the clock is not synchronised; switch that on', SET_CLOCK)
  return ok(`the clock says ${shown}`)
}

function networkFinding(gateway: string): Finding {
  return gateway === ''
    ? warning(
        'no default route leads out, so the service may not be reached: connect the host, or set a proxy',
      )
    : ok(`the network leads out by ${gateway}`)
}

interface FileSystem {
  readonly mount: string
  readonly available: number
}

/** A finding about the file system of each directory. */
function diskFindings(fileSystems: readonly FileSystem[], directories: readonly string[]): Finding[] {
  const found = directories.map((directory) =>
    fileSystems
      .filter(({ mount }) => `${directory}/`.startsWith(mount === '/' ? '/' : `${mount}/`))
      .toSorted((one, other) => other.mount.length - one.mount.length)
      .at(0),
  )
  return [...new Set(found)].filter((each) => each !== undefined).map(diskFinding)
}

function diskFinding({ mount, available }: FileSystem): Finding {
  const left = `the file system at ${mount} has ${formatBytes(available)} left`
  if (available < DISK.fullBytes) return fault(`the file system at ${mount} is full: free space on it`)
  return available < DISK.scarceBytes ? warning(`${left}, which is little: free space on it`) : ok(left)
}

function memoryFinding(availableBytes: number): Finding {
  const left = `${formatBytes(availableBytes)} of memory are free`
  if (availableBytes < SCARCE_MEMORY_BYTES)
    return warning(`only ${left}: stop what is not needed, or the kernel may end the daemon`)
  return ok(left)
}

function formatBytes(bytes: number): string {
  if (bytes < 10 * MIB) return `${Math.floor(bytes / 1024)} KiB`
  if (bytes < 10 * 1024 * MIB) return `${Math.floor(bytes / MIB)} MiB`
  return `${Math.floor(bytes / (1024 * MIB))} GiB`
}
