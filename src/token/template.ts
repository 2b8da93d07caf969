// The token in a line of a shell.

/** The characters of a token that need no quotes anywhere: in shells, files of variables, JSON, YAML, SQL. */
const PLAIN = /^[\w.+/=-][\w.~+/=-]*$/

/** The token as a line of a file of variables, and of a shell script. A token has no single quote. */
export function variableLine(token: string): string {
  return `KYC_ACCESS_TOKEN=${PLAIN.test(token) ? token : `'${token}'`}`
}
