// Hides the network interfaces from node-ipc, which asks for them as soon as it is imported, and whenever it is made: on
// a Unix socket they are of no interest, asking takes milliseconds, and the service's sandbox, which has no netlink
// sockets, forbids it. Import this before the library, and show them again.
import os from 'node:os'

const { networkInterfaces } = os

export function hideNetworkInterfaces(): void {
  os.networkInterfaces = () => ({})
}
export function showNetworkInterfaces(): void {
  os.networkInterfaces = networkInterfaces
}

hideNetworkInterfaces()
