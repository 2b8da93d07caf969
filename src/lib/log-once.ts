// Logs a problem once however often it is met, and once that it is over.

export interface ProblemLog {
  /** The problem as it is now; null: there is none. */
  set(problem: string | null): void
  current(): string | null
}

/** Calls `write` where the problem is new, another one, or over (null). */
export function createProblemLog(write: (problem: string | null) => void): ProblemLog {
  let current: string | null = null
  return {
    set(problem) {
      if (problem === current) return
      current = problem
      write(problem)
    },
    current: () => current,
  }
}
