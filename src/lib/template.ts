// A template for one token: text with the placeholders `${accessToken}` and a few more; `$${` is a literal `${`.

export const placeholders = ['accessToken', 'expiresAt', 'obtainedAt', 'fingerprint', 'baseUrl'] as const
type Placeholder = (typeof placeholders)[number]

/** A text in pieces: literal text and placeholders. */
export type Template = readonly (string | { readonly placeholder: Placeholder })[]

type ParsedTemplate =
  | { readonly kind: 'template'; readonly template: Template }
  /** Names between `${` and `}` that are no placeholders. */
  | { readonly kind: 'unknown'; readonly names: readonly string[] }
  | { readonly kind: 'unclosed' }

export function parseTemplate(text: string): ParsedTemplate {
  const unknown = new Set<string>()
  let isClosed = true
  const template = text.split(/(\$\$\{|\$\{[^}]*\}?)/).map((piece) => {
    if (piece === '$${') return '${'
    if (!piece.startsWith('${')) return piece
    const name = piece.slice(2, -1)
    if (!piece.endsWith('}')) isClosed = false
    else if (isPlaceholder(name)) return { placeholder: name }
    else unknown.add(name)
    return piece
  })
  if (!isClosed) return { kind: 'unclosed' }
  if (unknown.size > 0) return { kind: 'unknown', names: [...unknown] }
  return { kind: 'template', template }
}

export function renderTemplate(
  template: Template,
  values: Readonly<Partial<Record<Placeholder, string>>>,
): string {
  return template
    .map((piece) => (typeof piece === 'string' ? piece : (values[piece.placeholder] ?? '')))
    .join('')
}

function isPlaceholder(name: string): name is Placeholder {
  return (placeholders as readonly string[]).includes(name)
}
