// The cost of every program in Node costs.
process.exitCode = 0
