// What every program in Node costs.
process.exitCode = 0
