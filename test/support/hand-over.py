# Becomes a program that inherits listening sockets, as a service of systemd: NAMES DIRECTORY COMMAND...
# NAMES are joined by colons; the first socket is DIRECTORY/0.sock, and so on. No other process holds them.
import os
import socket
import sys

names, directory, *command = sys.argv[1:]
listeners = []
for index in range(len(names.split(":"))):
    listener = socket.socket(socket.AF_UNIX)
    listener.bind(f"{directory}/{index}.sock")
    listener.listen(128)
    listeners.append(os.dup2(listener.fileno(), 100 + index))
for index, descriptor in enumerate(listeners):
    os.dup2(descriptor, 3 + index)
os.closerange(3 + len(listeners), 200)
os.environ.update(LISTEN_PID=str(os.getpid()), LISTEN_FDS=str(len(listeners)), LISTEN_FDNAMES=names)
os.execvp(command[0], command)
