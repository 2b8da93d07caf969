// The type of a document without the values that were found faulty: anything may be missing.
import type { ConfigInput } from './schema.ts'

export type SecretSource = ConfigInput['credentials']['apiKey']

/** A secret source is whole or not there. */
type Part<T> = T extends SecretSource
  ? T
  : T extends readonly (infer Element)[]
    ? readonly (Part<Element> | undefined)[]
    : T extends object
      ? { readonly [Key in keyof T]?: Part<T[Key]> | undefined }
      : T

export type ValidPart = Part<ConfigInput>
