# Becomes a program that inherits listening sockets, as systemd starts a service: NAME=ADDRESS... COMMAND...
# An address is a path, or HOST:PORT.
import os
import socket
import sys

words = sys.argv[1:]
names = []
while "=" in words[0]:
    name, address = words.pop(0).split("=", 1)
    if address.startswith("/"):
        listener = socket.socket(socket.AF_UNIX)
        listener.bind(address)
    else:
        host, port = address.rsplit(":", 1)
        listener = socket.socket(socket.AF_INET)
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind((host, int(port)))
    listener.listen(128)
    os.dup2(listener.fileno(), 100 + len(names), inheritable=False)
    names.append(name)
for index in range(len(names)):
    os.dup2(100 + index, 3 + index)
os.environ.update(LISTEN_PID=str(os.getpid()), LISTEN_FDS=str(len(names)), LISTEN_FDNAMES=":".join(names))
os.execvp(words[0], words)
