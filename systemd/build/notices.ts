// The licences of what the packages contain beside our own code: Node with its parts, koffi, each library in the bundle.
import { readFileSync } from 'node:fs'
import path from 'node:path'
import { libraryNotices } from '../../src/build/notices.ts'

export function notices(project: string, nodePackage: string): string {
  const texts = {
    'Node.js (/usr/lib/kyc-tokend/node), from https://nodejs.org/': path.join(nodePackage, 'LICENSE'),
    'koffi (its native module)': path.join(project, 'node_modules/koffi/LICENSE.txt'),
  }
  const native = Object.entries(texts).map(
    ([name, file]) => `${'='.repeat(78)}\n${name}\n\n${readFileSync(file, 'utf8')}`,
  )
  return [...native, libraryNotices(project)].join('\n')
}
