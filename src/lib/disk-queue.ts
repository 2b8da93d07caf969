// Disk work: one task at a time on each file system, and at most two at once, so that stalled disks leave threads of libuv free.
import { readFileSync } from 'node:fs'
import { exitStatus, UserError, withSystemFallback } from './error.ts'

/** libuv has four threads, and name look-ups take up to two of them. */
const MAX_RUNNING = 2
/** A task that takes longer than this counts as stalled. */
const STALL_MS = 5_000
/** The longest time that the daemon's end waits for a file. */
export const STOP_WAIT_MS = 1_000

/** The file system of this directory has not answered in time. The work is still done once it answers again. */
export class DiskStalledError extends UserError {
  constructor(directory: string) {
    const message = `the disk of ${directory} has not answered for ${STALL_MS / 1000} s: check the disk or its server`
    super(message, exitStatus.tryAgain)
  }
}

/**
 * Does the work when all earlier work on the directory's file system is done, and gives its result. Rejects as the work
 * does, or with DiskStalledError if the file system does not answer.
 */
type OnFileSystem = <T>(directory: string, work: () => Promise<T>) => Promise<T>

interface Task {
  start(): Promise<void>
  /** Its caller waits no longer. */
  giveUp(): void
}
interface Queue {
  /** The first one is running if `isBusy`. */
  readonly tasks: Task[]
  readonly timer: NodeJS.Timeout
  isBusy: boolean
  isStalled: boolean
}

/** `mountTable` returns the text of mountinfo (proc(5)), which names the file system of a path; stat could stall. */
export function createDiskQueue(mountTable: () => string): OnFileSystem {
  /** By device. */
  const queues = new Map<string, Queue>()
  let running = 0

  function addQueue(device: string, tasks: Task[]): void {
    const onStall = (): void => {
      queue.isStalled = true
      for (const task of queue.tasks) task.giveUp()
    }
    const timer = setTimeout(onStall, STALL_MS).unref()
    const queue: Queue = { tasks, timer, isBusy: false, isStalled: false }
    queues.set(device, queue)
  }

  function startAll(): void {
    for (const [device, queue] of queues) {
      if (running === MAX_RUNNING) return
      if (!queue.isBusy) void runFirst(device, queue)
    }
  }

  async function runFirst(device: string, queue: Queue): Promise<void> {
    queue.isBusy = true
    running += 1
    await queue.tasks[0]?.start()
    running -= 1
    clearTimeout(queue.timer)
    queues.delete(device)
    // Its queue goes to the end of the list, so that two busy file systems do not hold up a third one.
    if (queue.tasks.length > 1) addQueue(device, queue.tasks.slice(1))
    startAll()
  }

  return (directory, work) =>
    new Promise((resolve, reject) => {
      const task: Task = {
        start: async () => work().then(resolve, reject),
        giveUp: () => reject(new DiskStalledError(directory)),
      }
      const device = deviceOf(directory, mountTable())
      const queue = queues.get(device)
      if (queue === undefined) addQueue(device, [task])
      else {
        queue.tasks.push(task)
        if (queue.isStalled) task.giveUp()
      }
      startAll()
    })
}

/** Without /proc all directories share a queue. */
export const onFileSystem = createDiskQueue(() =>
  withSystemFallback('', () => readFileSync('/proc/self/mountinfo', 'utf8')),
)

/** The device, as `major:minor`, that is mounted the deepest above the directory. */
function deviceOf(directory: string, mountTable: string): string {
  let found = { mountPoint: '', device: '' }
  for (const line of mountTable.split('\n')) {
    const [, , device = '', , escaped = ''] = line.split(' ')
    const mountPoint = escaped.replaceAll(/\\(\d{3})/g, (_, digits: string) =>
      String.fromCharCode(Number.parseInt(digits, 8)),
    )
    const isAbove = `${directory}/`.startsWith(mountPoint.endsWith('/') ? mountPoint : `${mountPoint}/`)
    // A later mount at the same path covers an earlier one.
    if (isAbove && mountPoint.length >= found.mountPoint.length) found = { mountPoint, device }
  }
  return found.device
}
