# Starts programs that inherit listening sockets, as systemd starts a service: NAME=ADDRESS... COUNT COMMAND...
# An address is a path, or HOST:PORT. With a COUNT of 0 it becomes the program itself; else it prints "PID STATUS" as each ends; SIGTERM is passed on to all of them.
import os
import signal
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
count, *command = words
children = []


def become_program():
    for index in range(len(names)):
        os.dup2(100 + index, 3 + index)
    os.environ.update(LISTEN_PID=str(os.getpid()), LISTEN_FDS=str(len(names)), LISTEN_FDNAMES=":".join(names))
    os.execvp(command[0], command)


if count == "0":
    become_program()
for _ in range(int(count)):
    pid = os.fork()
    if pid == 0:
        become_program()
    children.append(pid)


def stop(number, frame):
    for child in children:
        try:
            os.kill(child, number)
        except ProcessLookupError:
            pass


signal.signal(signal.SIGTERM, stop)
for _ in list(children):
    pid, status = os.wait()
    children.remove(pid)
    print(pid, os.waitstatus_to_exitcode(status), flush=True)
