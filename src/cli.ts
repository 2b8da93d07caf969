#!/usr/bin/env node
// The whole program.
// First: its statements come before all others.
import './daemon/daemon-signals.ts'
import { start } from './commands/main.ts'
import { commands } from './commands/specs.ts'

void start(commands)
