import os from 'node:os'
import { expect, it } from 'vitest'
import { createIpcFraming } from '../../src/delivery/ipc/framing.ts'

it('the network interfaces, which are hidden from node-ipc, are there again for the host name', () => {
  createIpcFraming({ path: '/nowhere/ipc.sock' })
  expect(Object.keys(os.networkInterfaces())).toContain('lo')
})
