// The rules of the contract that hold for every run: the names by which tests know them, and their sentences.
// `records.ts` checks what a daemon logged.

export const RULES = {
  'one-at-a-time': 'two requests at once',
  refused: 'a request after a refusal that nobody has ended',
  'client-pace': 'two requests that clients caused too soon after each other',
  'good-token': 'a good token is not served',
  expired: 'a token past its end is handed out',
  number: 'two tokens have one number',
  'alert-missing': 'what an operator must know of raises no alert',
  'alert-once': 'an alert is raised twice',
  'alert-rank': 'an alert that is outranked is raised',
  'alert-end': 'an alert ends that was not raised',
  'trial-once': 'one trial has two records',
} as const

export type Rule = keyof typeof RULES

/** Hears that a rule is broken; `detail`: by what. */
export type Broke = (rule: Rule, detail?: string) => void

/** The sentence of a broken rule. */
export function sentenceOf(rule: Rule, detail = ''): string {
  return detail === '' ? RULES[rule] : `${RULES[rule]} (${detail})`
}

/** The check that reports the rule unless the claim holds. */
export function checkWith(broke: Broke) {
  return (isHeld: boolean, rule: Rule, detail?: string): void => {
    if (!isHeld) broke(rule, detail)
  }
}
