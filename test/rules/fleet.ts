// The rule about answers that may concern one host of a fleet alone: `rejected` (the service does not let its
// address in), and a refusal of what it proves itself with.
import { checkWith, type Broke } from './rules.ts'

interface OfAnswer {
  /** The hosts that ever got it. */
  readonly hosts: Set<number>
  /** Those that got it since the account last had a token. */
  readonly sinceToken: Set<number>
  /** It counts for all: a second host has got it, too, or the host that got it was alone. */
  isConfirmed: boolean
}
/** An answer of the service to a host, which is a number, about an account. */
interface Answer {
  readonly host: number
  readonly account: string
  readonly reason: string
}

export function createOwnAnswers(broke: Broke) {
  const check = checkWith(broke)
  const answers = new Map<string, OfAnswer>()
  const of = ({ account, reason }: Answer): OfAnswer => {
    const key = `${reason} ${account}`
    const found = answers.get(key) ?? { hosts: new Set(), sinceToken: new Set(), isConfirmed: false }
    answers.set(key, found)
    return found
  }
  return {
    answered(answer: Answer, { isAlone }: { isAlone: boolean }): void {
      const found = of(answer)
      found.hosts.add(answer.host)
      found.sinceToken.add(answer.host)
      if (isAlone || found.sinceToken.size > 1) found.isConfirmed = true
    },
    /** The service gave the account a token. */
    granted(account: string): void {
      for (const [key, { sinceToken }] of answers) if (key.endsWith(` ${account}`)) sinceToken.clear()
    },
    /** The host shows this reason as its own. */
    shown(answer: Answer): void {
      const { hosts, isConfirmed } = of(answer)
      check(isConfirmed || hosts.has(answer.host), 'own-answer', answer.reason)
    },
  }
}
