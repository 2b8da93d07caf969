// Notices that a ready-made assertion was renewed while a refusal by a row of the preset is in force.
import type { Config } from '../config/config.ts'
import { readReadyAssertion } from '../config/ready-assertion.ts'
import { isPresetRefusal } from '../config/schema-service.ts'
import type { Keeper } from '../token/keeper.ts'
import { refusalOf } from '../token/state.ts'
import { fingerprintOf } from '../token/token.ts'

export function createAssertionWatch({
  config,
  keeper,
}: {
  readonly config: () => Pick<Config, 'service'>
  readonly keeper: Pick<Keeper, 'state' | 'now' | 'renewed'>
}) {
  /** The assertion that was there at the last tick of this refusal; null: none was. */
  let seen: string | null = null

  return {
    async tick(): Promise<void> {
      const file = config().service.assertion?.file ?? null
      const refusal = refusalOf(keeper.state())
      if (file === null || refusal === null || !isPresetRefusal(refusal)) {
        seen = null
        return
      }
      const read = await readReadyAssertion(file, keeper.now())
      if (typeof read === 'string') return
      const found = fingerprintOf(read.text)
      const isRenewed = seen !== null && seen !== found
      seen = found
      if (isRenewed) keeper.renewed()
    },
  }
}
