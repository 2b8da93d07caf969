// Events between two looks at the status, for `status --watch` and the demo.
import type { StatusResult } from '../protocol.ts'

/** Sentences without an instant; none where nothing happened. `before` is null at first. */
export function eventsBetween(before: StatusResult | null, after: StatusResult): string[] {
  return [
    ...(before?.state === after.state ? [] : [`state ${after.state}`]),
    ...tokenEvents(before?.token ?? null, after.token),
    ...failureEvents(before?.failure ?? null, after.failure),
    ...alertEvents(before?.alert ?? null, after.alert),
  ]
}

function tokenEvents(before: StatusResult['token'], after: StatusResult['token']): string[] {
  if (after === null) return before === null ? [] : ['no usable token any more']
  if (after.fingerprint === before?.fingerprint) return []
  return [`token ${after.generation} (${after.fingerprint}), good until ${after.expiresAt.slice(11, 19)}Z`]
}

function failureEvents(before: StatusResult['failure'], after: StatusResult['failure']): string[] {
  if (after === null) return []
  const { reason, detail, attempts } = after
  const isNew = before?.reason !== reason || before.attempts < attempts
  return isNew ? [`attempt ${attempts} failed: ${reason}, ${detail}`] : []
}

function alertEvents(before: StatusResult['alert'], after: StatusResult['alert']): string[] {
  if (after === null) return before === null ? [] : [`alert over: ${before.reason}`]
  return before?.reason === after.reason ? [] : [`alert raised: ${after.reason}`]
}
