// starts SOCKET COMMAND …: from the start to the first answered token.get; ends it in order, prints that and the CPU time, in ns.
#define _GNU_SOURCE
#include <errno.h>
#include <signal.h>
#include <spawn.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

#include "measure.h"

#define PATIENCE_NS 10000000000ull
#define LOOK_EVERY_US 100

extern char **environ;

static int connected(const char *path) {
  struct sockaddr_un address = {.sun_family = AF_UNIX};
  strncpy(address.sun_path, path, sizeof address.sun_path - 1);
  int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
  if (connect(fd, (struct sockaddr *)&address, sizeof address) == 0) return fd;
  close(fd);
  return -1;
}

int main(int argc, char **argv) {
  static const char request[] = "{\"type\":\"token.get\",\"data\":{\"id\":\"1\",\"waitSeconds\":10}}\f";
  if (argc < 3) return 64;
  uint64_t from = now_ns(), took = 0, cpu = 0;
  pid_t pid;
  if ((errno = posix_spawnp(&pid, argv[2], NULL, NULL, argv + 2, environ)) != 0) die(argv[2]);
  while (took == 0 && now_ns() - from < PATIENCE_NS) {
    int fd = connected(argv[1]);
    if (fd >= 0) {
      char answer[64 * 1024];
      if (write(fd, request, sizeof request - 1) < 0) die("write");
      ssize_t length = read(fd, answer, sizeof answer - 1);
      if (length > 0) answer[length] = 0;
      if (length <= 0 || strstr(answer, "accessToken") == NULL) die("not the answer that was expected");
      took = now_ns() - from;
      cpu = cpu_ns(pid);
      close(fd);
    }
    usleep(LOOK_EVERY_US);
  }
  kill(pid, SIGTERM);
  waitpid(pid, NULL, 0);
  printf("%llu %llu\n", (unsigned long long)took, (unsigned long long)cpu);
  return took == 0;
}
