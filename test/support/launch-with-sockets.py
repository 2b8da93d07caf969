# Starts programs that inherit two listening sockets, as systemd starts a service: IPC_PATH HTTP_PATH COUNT COMMAND...
# Prints "PID STATUS" as each ends; SIGTERM is passed on to all of them.
import os
import signal
import socket
import sys

ipc_path, http_path, count, *command = sys.argv[1:]
for descriptor, path in ((13, ipc_path), (14, http_path)):
    listener = socket.socket(socket.AF_UNIX)
    listener.bind(path)
    listener.listen(128)
    os.dup2(listener.fileno(), descriptor)
children = []
for _ in range(int(count)):
    pid = os.fork()
    if pid == 0:
        os.dup2(13, 3)
        os.dup2(14, 4)
        os.environ.update(LISTEN_PID=str(os.getpid()), LISTEN_FDS="2", LISTEN_FDNAMES="ipc:http")
        os.execvp(command[0], command)
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
