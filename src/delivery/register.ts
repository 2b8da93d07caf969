// What is known of each of very many that come and go. A Map would leave old tables behind whenever it makes room, and
// each keeps what was in it alive until the next full collection: nearly a tenth of what a short connection costs.

export interface Register<K extends object, V> {
  set(key: K, value: V): void
  get(key: K): V | undefined
  delete(key: K): void
  /** Of now, in no order: not to be gone through while entries are deleted. */
  readonly values: readonly V[]
}

/** Where an entry is, noted at the key itself. */
type Seated = Record<symbol, number | undefined>

export function createRegister<K extends object, V>(): Register<K, V> {
  const seat = Symbol('seat')
  const keys: Seated[] = []
  const values: V[] = []

  function set(key: K, value: V): void {
    const seated = key as Seated
    const at = (seated[seat] ??= keys.push(seated) - 1)
    values[at] = value
  }

  /** The last one takes the seat that is free. */
  function remove(key: K): void {
    const seated = key as Seated
    const at = seated[seat]
    if (at === undefined) return
    const lastKey = keys.pop() as Seated
    const lastValue = values.pop() as V
    seated[seat] = undefined
    if (lastKey === seated) return
    keys[at] = lastKey
    values[at] = lastValue
    lastKey[seat] = at
  }

  return {
    set,
    get(key) {
      const at = (key as Seated)[seat]
      return at === undefined ? undefined : values[at]
    },
    delete: remove,
    values,
  }
}
