#!/usr/bin/env node
// The whole program.
// oxlint-disable-next-line import/no-unassigned-import -- its statements come before all others
import './daemon/daemon-signals.ts'
import { start } from './commands/main.ts'
import { commands } from './commands/specs.ts'

void start(commands)
