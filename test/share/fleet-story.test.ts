// Stories of chance of three hosts with the real keeper, saved state and sharing, in the world of the model.
//
//   KYC_STORY_SEED=7 KYC_STORY_RUNS=1000 npx vitest run --config test/vitest.process.config.ts \
//     test/share/fleet-story.test.ts
//
// plays 1,000 stories from that seed on. A story that breaks a rule is shortened before it is shown.
import { expect, test } from 'vitest'
import { wander } from '../model/explore.ts'

const first = Number(process.env['KYC_STORY_SEED'] ?? 1)
const runs = Number(process.env['KYC_STORY_RUNS'] ?? 10)

test(
  `${runs} stories of a fleet from seed ${first} on break no rule`,
  { timeout: runs * 10_000 + 60_000 },
  async () => {
    const broken: string[] = []
    for (let seed = first; seed < first + runs && broken.length === 0; seed += 1) {
      const found = await wander({ hosts: 3, length: 25, seed })
      if (found !== null) broken.push(found)
    }
    expect(broken).toEqual([])
  },
)
