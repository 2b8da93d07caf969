// The shape of a document against the schema: every fault, with its key path and its remedy, and no value.
import * as v from 'valibot'
import { keyPath, type ConfigIssue } from './issues.ts'
import { configSchema, type Settings } from './schema.ts'

/** The settings, or the faults of the document's shape: one for each key path. */
export function validateDocument(document: unknown): {
  faults: ConfigIssue[]
  settings: Settings | undefined
} {
  const { success, output, issues } = v.safeParse(configSchema(), document, { abortPipeEarly: true })
  if (success) return { faults: [], settings: output }
  const faults = issues.map(({ path = [], message }) => ({
    at: keyPath(path.map(({ key }) => key as PropertyKey)),
    sentence: message,
  }))
  return { faults, settings: undefined }
}
