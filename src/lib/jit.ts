// V8 makes machine code of what is called often; the unit forbids it (`--jitless`).
export const hasJit = !process.execArgv.includes('--jitless')
