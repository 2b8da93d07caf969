// A template for one token: text with the placeholders `${accessToken}` …; `$${` is a literal `${`.

export const placeholders = ['accessToken', 'expiresAt', 'obtainedAt', 'fingerprint', 'baseUrl'] as const

const PLACEHOLDER = /\$\$\{|\$\{([^}]*)(\}?)/g

/** The characters of a token that need no quotes anywhere: in shells, files of variables, JSON, YAML, SQL. */
const PLAIN = /^[\w.+/=-][\w.~+/=-]*$/

/** Reports whether a token has other characters than letters, digits and `._~+/=-`, or begins with `~`. */
export function needsQuotes(token: string): boolean {
  return !PLAIN.test(token)
}

/** The token as a line of a file of variables, and of a shell script. A token has no single quote. */
export function variableLine(token: string): string {
  return `KYC_ACCESS_TOKEN=${needsQuotes(token) ? `'${token}'` : token}`
}

/** The names of the placeholders in a text, known or not; null: one lacks its `}`. */
export function placeholdersIn(text: string): string[] | null {
  const found = [...text.matchAll(PLACEHOLDER)].filter(([part]) => part !== '$${')
  return found.some(([, , end]) => end === '') ? null : found.map(([, name = '']) => name)
}

/** The text, in which all placeholders are known, with these values. */
export function renderTemplate(
  text: string,
  values: Readonly<Record<(typeof placeholders)[number], string>>,
): string {
  return text.replace(PLACEHOLDER, (part, name: keyof typeof values) =>
    part === '$${' ? '${' : values[name],
  )
}
