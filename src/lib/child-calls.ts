// Calls of libc about child processes: reaps those that other programs left to this one.
import type { Call } from './connection-calls.ts'

export interface ChildCalls {
  /**
   * Reaps the ended children that this program did not start itself: orphans, which PID 1 inherits. `own` is the child
   * that Node reaps; where that one has just ended, the rest waits for the next call.
   */
  reapOrphans(own: number | undefined): void
}

/** Numbers of the Linux ABI in include/uapi/linux/wait.h. */
const ABI = { P_ALL: 0, WNOHANG: 1, WEXITED: 4, WNOWAIT: 0x1000000 } as const
const SIGINFO_BYTES = 128
/** `si_pid`: the union that holds it is aligned to a pointer. */
const PID_OFFSET = process.arch === 'arm' || process.arch === 'ia32' ? 12 : 16

export function createChildCalls(func: (definition: string) => Call): ChildCalls {
  const waitid = func('int waitid(int, uint32_t, void *, int)')
  const waitpid = func('int waitpid(int, void *, int)')

  /** The pid of an ended child, which stays unreaped; 0 where there is none. */
  function endedChild(): number {
    const info = Buffer.alloc(SIGINFO_BYTES)
    const result = waitid(ABI.P_ALL, 0, info, ABI.WEXITED | ABI.WNOHANG | ABI.WNOWAIT)
    return result === 0 ? info.readInt32LE(PID_OFFSET) : 0
  }

  return {
    reapOrphans(own) {
      for (;;) {
        const pid = endedChild()
        if (pid === 0 || pid === own || waitpid(pid, null, ABI.WNOHANG) !== pid) return
      }
    },
  }
}
