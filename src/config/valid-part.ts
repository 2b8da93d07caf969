// The type of the settings without the values that were found faulty: a required one, or an element of a list, may be missing.
import type { ConfigInput, Settings } from './schema.ts'

export type ValidPart = Part<Settings, ConfigInput>
export type SecretSource = Settings['credentials']['apiKey']

/** Of `Out` as the schema makes it from `In`. What is written as a text, secret sources too, is whole or missing. */
type Part<Out, In> = string extends In
  ? Out
  : { readonly [Key in keyof Out]: Part<Out[Key], Written<In, Key>> | Missing<Written<In, Key>> }
/** A setting that may be left out has a default, and is never missing. */
type Missing<In> = undefined extends In ? never : undefined
type Written<In, Key> = In extends object ? (Key extends keyof In ? In[Key] : never) : never
