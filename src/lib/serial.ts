// Disk work: one task at a time on each file system, and never so many at once that disks that stall take all of libuv's threads.
import { readFileSync } from 'node:fs'
import { fs } from './fs.ts'

/** libuv has four threads, and name look-ups take up to two of them. */
const MAX_RUNNING = 2
/** A task that takes longer than this counts as stalled. */
const STALL_MS = 5_000
/** The end of the daemon waits this long for a file at most. */
export const STOP_WAIT_MS = 1_000

/** The file system of this directory did not answer in time. The work is still done once it answers again. */
export class DiskStalledError extends Error {
  override readonly name = 'DiskStalledError'
  constructor(directory: string) {
    super(`the disk of ${directory} has not answered for ${STALL_MS / 1000} s: check the disk or its server`)
  }
}

interface Task {
  start(): Promise<void>
  /** Its caller waits no longer. */
  giveUp(): void
}
interface Queue {
  /** The first one is running where `isBusy`. */
  readonly tasks: Task[]
  isBusy: boolean
  isStalled: boolean
  /** Undefined for memory, which always answers: a timer wakes the process also where it was cleared. */
  readonly timer: NodeJS.Timeout | undefined
}

/** By the number of the device. */
const queues = new Map<number, Queue>()
let running = 0

/**
 * Does the work when all earlier work on the directory's file system is done, and gives its result. Rejects as the work
 * does, or with DiskStalledError where the file system does not answer.
 */
export function onFileSystem<T>(directory: string, work: () => Promise<T>): Promise<T> {
  return new Promise((resolve, reject) => {
    enqueue(deviceOf(directory), {
      start: async () => work().then(resolve, reject),
      giveUp: () => {
        reject(new DiskStalledError(directory))
      },
    })
  })
}

function enqueue(device: number, task: Task): void {
  const queue = queues.get(device)
  if (queue === undefined) addQueue(device, [task])
  else {
    queue.tasks.push(task)
    if (queue.isStalled) task.giveUp()
  }
  startAll()
}

function addQueue(device: number, tasks: Task[]): void {
  const onStall = (): void => {
    queue.isStalled = true
    for (const task of queue.tasks) task.giveUp()
  }
  const timer = isMemoryDevice(device) ? undefined : setTimeout(onStall, STALL_MS).unref()
  const queue: Queue = { tasks, isBusy: false, isStalled: false, timer }
  queues.set(device, queue)
}

function startAll(): void {
  for (const [device, queue] of queues) {
    if (running === MAX_RUNNING) return
    if (!queue.isBusy) void runFirst(device, queue)
  }
}

async function runFirst(device: number, queue: Queue): Promise<void> {
  queue.isBusy = true
  running += 1
  await queue.tasks[0]?.start()
  running -= 1
  clearTimeout(queue.timer)
  queues.delete(device)
  // To the end, so that two busy file systems do not keep a third one waiting.
  if (queue.tasks.length > 1) addQueue(device, queue.tasks.slice(1))
  startAll()
}

// ---- which file system ------------------------------------------------------------------------------------------------

/** Device numbers of directories that were opened. */
const devices = new Map<string, number>()

/** Notes the device of a directory that was opened: `dev` of its stat. */
export function noteDevice(directory: string, device: number): void {
  devices.set(directory, device)
}

/** For a directory that was never opened, the mount table has it: stat would wait for a disk that stalls. */
function deviceOf(directory: string): number {
  return devices.get(directory) ?? deviceInMountTable(directory)
}

function deviceInMountTable(directory: string): number {
  let best = { mountPoint: '', device: 0 }
  for (const { device, mountPoint } of mountTable()) {
    const isAbove = `${directory}/`.startsWith(mountPoint.endsWith('/') ? mountPoint : `${mountPoint}/`)
    if (isAbove && mountPoint.length >= best.mountPoint.length) best = { mountPoint, device }
  }
  return best.device
}

interface Mount {
  readonly device: number
  readonly mountPoint: string
  /** `tmpfs`, `ext4` … */
  readonly type: string
}

/** proc(5), mountinfo. Without /proc it is empty, and all directories that were not opened yet share a queue. */
function mountTable(): Mount[] {
  return readMountTable()
    .split('\n')
    .map((line) => {
      const [, , numbers = '', , escaped = ''] = line.split(' ')
      const [major = 0, minor = 0] = numbers.split(':').map(Number)
      const mountPoint = escaped.replaceAll(/\\(\d{3})/g, (_, digits: string) =>
        String.fromCharCode(Number.parseInt(digits, 8)),
      )
      const [, type = ''] = / - (\S+) /.exec(line) ?? []
      return { device: deviceNumber(major, minor), mountPoint, type }
    })
}

function readMountTable(): string {
  try {
    return readFileSync('/proc/self/mountinfo', 'utf8')
  } catch {
    return ''
  }
}

/** makedev(3). */
function deviceNumber(major: number, minor: number): number {
  return (minor & 0xff) + (major & 0xfff) * 2 ** 8 + (minor & 0xfff00) * 2 ** 12
}

/**
 * Reports whether the directory was opened and is on a file system in memory. No call waits there, so a short one need
 * not take a thread: threads wake the processor.
 */
export function isQuick(directory: string): boolean {
  const device = devices.get(directory)
  return device !== undefined && isMemoryDevice(device)
}

/** Reports whether this is the device of a file system in memory. */
export function isMemoryDevice(device: number): boolean {
  const known = inMemory.get(device)
  if (known !== undefined) return known
  const types = mountTable().filter((mount) => mount.device === device)
  const isInMemoryOnly = types.length > 0 && types.every(({ type }) => type === 'tmpfs' || type === 'ramfs')
  inMemory.set(device, isInMemoryOnly)
  return isInMemoryOnly
}
const inMemory = new Map<number, boolean>()

/** Reports whether the directory is on a file system that lives in memory, and so does not outlive the boot. */
export async function isInMemory(directory: string): Promise<boolean> {
  const found = await onFileSystem(directory, async () => fs.statfs(directory)).catch(() => undefined)
  return found !== undefined && IN_MEMORY_TYPES.has(found.type)
}

/** `f_type` of tmpfs and ramfs, from statfs(2). */
const IN_MEMORY_TYPES = new Set([0x01021994, 0x858458f6])
