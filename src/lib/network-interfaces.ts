// os.networkInterfaces() where it is forbidden: none, instead of an error. node-ipc asks as soon as it is imported, and
// the service's sandbox has no netlink sockets. Import it before whoever asks through the default export of node:os.
import os from 'node:os'

const { networkInterfaces } = os

os.networkInterfaces = () => {
  try {
    return networkInterfaces()
  } catch {
    return {}
  }
}
