// `npm run simulate`.
import { simulateCommand } from './command.ts'

const { status, stdout, stderr } = await simulateCommand(process.argv.slice(2))
process.stdout.write(stdout)
process.stderr.write(stderr)
process.exitCode = status
