// The host: conditions that break a daemon like this one (clock, network, disk, memory).
import { existsSync, statfsSync } from 'node:fs'
import { freemem, networkInterfaces } from 'node:os'
import { dirname } from 'node:path'
import { sleep, withTimeout } from '../lib/clock.ts'
import { withSystemFallback } from '../lib/error.ts'
import { fault, ok, warning, type Finding } from '../lib/finding.ts'
import { runProgram } from '../lib/run-program.ts'

/** The longest wait for programs, also those that systeminformation runs: on a broken host they may hang. */
const ASK_MS = 3_000
/** A clock that shows an earlier time was never set. */
const EARLIEST_WALL_MS = Date.UTC(2026, 0, 1)
const MIB = 1024 * 1024
const DISK = { fullBytes: 256 * 1024, scarceBytes: 8 * MIB }
const SCARCE_MEMORY_BYTES = 64 * MIB

/** Examines the host. `directories` are those that the daemon writes to; for a missing one, the nearest above it is examined. */
export async function hostFindings(options: {
  directories: readonly string[]
  /** The service is on this host, so no network is needed. */
  isServiceLocal: boolean
  nowMs: number
}): Promise<Finding[]> {
  const [clock, network] = await Promise.all([
    clockFinding(options.nowMs),
    options.isServiceLocal ? [] : networkFinding(),
  ])
  const disks = [...new Set(options.directories.map(nearestThere))].flatMap(diskFindings)
  return [clock, network, disks, memoryFinding()].flat()
}

async function clockFinding(nowMs: number): Promise<Finding> {
  const shown = new Date(nowMs).toISOString()
  if (nowMs < EARLIEST_WALL_MS)
    return fault(`the clock says ${shown}, which is long past: set it (timedatectl set-ntp true)`)
  // The output is `yes` or `no`; without systemd, something else.
  const words = ['show', '--property=NTPSynchronized', '--value']
  const { stdout } = await runProgram('timedatectl', words, ASK_MS)
  if (stdout.trim() === 'no')
    return warning(`the clock is not synchronised: switch that on (timedatectl set-ntp true)`)
  return ok(`the clock says ${shown}`)
}

async function networkFinding(): Promise<Finding | []> {
  const outward = Object.values(networkInterfaces()).flat()
  if (!outward.some((address) => address?.internal === false))
    return warning('no network interface is up, so the service cannot be reached: connect the host')
  const name = await outwardInterface()
  return name === '' ? [] : ok(`the network leads out by ${name}`)
}

/** The directory, or the nearest above it that exists and may be seen. */
export function nearestThere(directory: string): string {
  return existsSync(directory) ? directory : nearestThere(dirname(directory))
}

function diskFindings(directory: string): Finding[] {
  const disk = withSystemFallback(null, () => statfsSync(directory))
  // That it is missing, or may not be entered, is a finding about the directory itself.
  if (disk === null || disk.blocks === 0) return []
  const freeBytes = disk.bavail * disk.bsize
  const fileSystem = `the file system of ${directory}`
  if (freeBytes < DISK.fullBytes) return [fault(`${fileSystem} is full: free space on it`)]
  if (disk.files > 0 && disk.ffree === 0)
    return [fault(`${fileSystem} has no inode left: remove files that are not needed`)]
  if (freeBytes < DISK.scarceBytes)
    return [warning(`${fileSystem} has only ${formatBytes(freeBytes)} left: free space on it`)]
  return [ok(`${fileSystem} has ${formatBytes(freeBytes)} left`)]
}

function memoryFinding(): Finding {
  const left = `${formatBytes(freemem())} of memory are free`
  if (freemem() < SCARCE_MEMORY_BYTES)
    return warning(`only ${left}: stop what is not needed, or the kernel may end the daemon`)
  return ok(left)
}

/**
 * Name of the interface of the default route; empty if there is none, or if the answer does not come in time.
 * systeminformation is loaded only here, because that takes 20 ms.
 */
async function outwardInterface(): Promise<string> {
  try {
    const { default: system } = await import('systeminformation')
    return (await withTimeout(ASK_MS, system.networkInterfaceDefault(), { sleep })) ?? ''
  } catch {
    // The reason does not matter: without an answer there is no finding.
    return ''
  }
}

function formatBytes(bytes: number): string {
  if (bytes < 10 * MIB) return `${Math.floor(bytes / 1024)} KiB`
  if (bytes < 10 * 1024 * MIB) return `${Math.floor(bytes / MIB)} MiB`
  return `${Math.floor(bytes / (1024 * MIB))} GiB`
}
