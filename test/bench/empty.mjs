// What every program in Node costs.
export {}
