// A rule that the program relies on, written where it is relied on. One that is broken is reported, and the
// program goes on: what it knows is worth more than a clean state.

export type Report = (rule: string, facts: Readonly<Record<string, unknown>>) => void

/** As long as nobody says where: tests fail. */
let report: Report = (rule, facts) => {
  throw new BrokenInvariant(rule, facts)
}

/** Its stack begins where the rule is relied on. The facts hold no secret. */
export class BrokenInvariant extends Error {
  override readonly name = 'BrokenInvariant'
  constructor(rule: string, facts: Readonly<Record<string, unknown>>) {
    super(`${rule} ${JSON.stringify(facts)}`)
    Error.captureStackTrace(this, invariant)
  }
}

/** From now on broken rules are reported there. */
export function reportInvariants(next: Report): void {
  report = next
}

/** `rule` names what has to hold, in lower-case words joined by hyphens. */
export function invariant(isKept: boolean, rule: string, facts: Readonly<Record<string, unknown>>): void {
  if (!isKept) report(rule, facts)
}
