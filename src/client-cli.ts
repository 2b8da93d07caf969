#!/usr/bin/env node
// The small program: the commands that need the client library alone. It has a tenth of the code and starts in half
// of the time.
import { clientCommands } from './commands/client-specs.ts'
import { start } from './commands/main.ts'

void start(clientCommands)
