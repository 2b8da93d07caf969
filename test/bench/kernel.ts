// Counts of the kernel about a process: memory of its own, CPU time, and wake-ups.
import { readdirSync, readFileSync } from 'node:fs'

/**
 * Private memory in bytes. A daemon without core dumps shows it to root only; else its anonymous memory is used, which
 * is nearly all of it.
 */
export function privateBytes(pid: number): number {
  try {
    return kilobytesOf(readFileSync(`/proc/${pid}/smaps_rollup`, 'utf8'), /^Private_\w+:\s+(\d+) kB/gm)
  } catch (error) {
    if ((error as NodeJS.ErrnoException).code !== 'EACCES') throw error
    return kilobytesOf(readFileSync(`/proc/${pid}/status`, 'utf8'), /^RssAnon:\s+(\d+) kB/gm)
  }
}

function kilobytesOf(text: string, lines: RegExp): number {
  return 1024 * [...text.matchAll(lines)].reduce((sum, [, kilobytes]) => sum + Number(kilobytes), 0)
}

/** CPU time of all its threads, as the scheduler counts it. */
export function cpuNs(pid: number): number {
  let sum = 0
  for (const task of readdirSync(`/proc/${pid}/task`))
    sum += Number(readFileSync(`/proc/${pid}/task/${task}/schedstat`, 'utf8').split(' ')[0])
  return sum
}

/** Times that any of its threads waited for something and went on. */
export function wakeUps(pid: number): number {
  let sum = 0
  for (const task of readdirSync(`/proc/${pid}/task`)) {
    const status = readFileSync(`/proc/${pid}/task/${task}/status`, 'utf8')
    sum += Number(/^voluntary_ctxt_switches:\s+(\d+)/m.exec(status)?.[1])
  }
  return sum
}
