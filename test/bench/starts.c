// Starts programs and times them, in ns, with as little of its own as can be.
//
//   starts run COUNT COMMAND …      from the start to the end, output read; prints one line for each run
//   starts try COUNT COMMAND …      the same, whatever the command's status
//   starts up SOCKET COMMAND …      from the start until it accepts a connection; ends it, prints one line
//   starts serve SOCKET COMMAND …   from the start to the first answered token.get; ends it in order, prints that and the CPU time
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
#include <time.h>
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

static void end(pid_t pid, int signal) {
  kill(pid, signal);
  waitpid(pid, NULL, 0);
}

static int up(const char *path, char **command) {
  unlink(path);
  uint64_t from = now_ns();
  pid_t pid;
  if ((errno = posix_spawnp(&pid, command[0], NULL, NULL, command, environ)) != 0) die(command[0]);
  int fd = -1;
  while ((fd = connected(path)) < 0 && now_ns() - from < PATIENCE_NS) usleep(LOOK_EVERY_US);
  uint64_t took = now_ns() - from;
  if (fd >= 0) close(fd);
  end(pid, SIGKILL);
  if (fd >= 0) printf("%llu\n", (unsigned long long)took);
  return fd < 0;
}

static int run(char **command) {
  int ends[2];
  if (pipe(ends) < 0) die("pipe");
  posix_spawn_file_actions_t actions;
  posix_spawn_file_actions_init(&actions);
  posix_spawn_file_actions_adddup2(&actions, ends[1], 1);
  posix_spawn_file_actions_addclose(&actions, ends[0]);
  posix_spawn_file_actions_addclose(&actions, ends[1]);
  uint64_t from = now_ns();
  pid_t pid;
  if ((errno = posix_spawnp(&pid, command[0], &actions, NULL, command, environ)) != 0) die(command[0]);
  close(ends[1]);
  char output[64 * 1024];
  while (read(ends[0], output, sizeof output) > 0) continue;
  int status;
  waitpid(pid, &status, 0);
  printf("%llu\n", (unsigned long long)(now_ns() - from));
  close(ends[0]);
  posix_spawn_file_actions_destroy(&actions);
  return status == 0 ? 0 : 1;
}

static int serve(const char *path, char **command) {
  static const char request[] = "{\"type\":\"token.get\",\"data\":{\"id\":\"1\",\"waitSeconds\":10}}\f";
  uint64_t from = now_ns(), took = 0, cpu = 0;
  pid_t pid;
  if ((errno = posix_spawnp(&pid, command[0], NULL, NULL, command, environ)) != 0) die(command[0]);
  while (took == 0 && now_ns() - from < PATIENCE_NS) {
    int fd = connected(path);
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
  end(pid, SIGTERM);
  printf("%llu %llu\n", (unsigned long long)took, (unsigned long long)cpu);
  return took == 0;
}

int main(int argc, char **argv) {
  if (argc < 4) return 64;
  if (strcmp(argv[1], "serve") == 0) return serve(argv[2], argv + 3);
  if (strcmp(argv[1], "up") == 0) return up(argv[2], argv + 3);
  int faults = 0;
  for (int count = atoi(argv[2]); count > 0; count--) faults += run(argv + 3);
  return faults > 0 && strcmp(argv[1], "try") != 0;
}
