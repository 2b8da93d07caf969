# Holds listening sockets, as systemd does, and restarts a program that inherits them:
# RESTARTS DIRECTORY COMMAND...
# The sockets are DIRECTORY/ipc.sock and DIRECTORY/http.sock. A restart follows 0.3 s after the program is
# ready (READY=1); the last one ends with this program, by SIGTERM.
import os
import signal
import socket
import sys
import time

restarts, directory, *command = sys.argv[1:]
listeners = []
for name in ("ipc", "http"):
    listener = socket.socket(socket.AF_UNIX)
    listener.bind(f"{directory}/{name}.sock")
    listener.listen(4096)
    listeners.append(listener)
notify = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
notify.bind(f"{directory}/notify")
signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGTERM})
for left in range(int(restarts), -1, -1):
    pid = os.fork()
    if pid == 0:
        for index, listener in enumerate(listeners):
            os.dup2(listener.fileno(), 100 + index)
        for index in range(2):
            os.dup2(100 + index, 3 + index)
        os.closerange(5, 200)
        signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGTERM})
        os.environ.update(LISTEN_PID=str(os.getpid()), LISTEN_FDS="2", LISTEN_FDNAMES="ipc:http")
        os.environ["NOTIFY_SOCKET"] = f"{directory}/notify"
        os.execvp(command[0], command)
    while b"READY=1" not in notify.recv(4096):
        pass
    if left > 0:
        time.sleep(0.3)
    else:
        signal.sigwait({signal.SIGTERM})
    os.kill(pid, signal.SIGTERM)
    status = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
    if status != 0:
        sys.exit(f"the program ended with {status}")
