// A template for one token: text with the placeholders `${accessToken}` and a few more; `$${` is a literal `${`.

export const placeholders = ['accessToken', 'expiresAt', 'obtainedAt', 'fingerprint', 'baseUrl'] as const

const PLACEHOLDER = /\$\$\{|\$\{([^}]*)(\}?)/g

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
