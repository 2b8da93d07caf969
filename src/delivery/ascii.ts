// JSON text in ASCII.

/** JSON text with everything but ASCII escaped, so that it can be written without being encoded. */
export function asciiOf(json: string): string {
  return json.replaceAll(
    /[\u0080-\uffff]/g,
    (character) => `\\u${character.charCodeAt(0).toString(16).padStart(4, '0')}`,
  )
}
