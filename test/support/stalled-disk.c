/* Preloaded into a program: fsync and unlink of files below $STALL_BELOW wait as long as the file $STALL_WHILE is there. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

static void wait_below(const char *link) {
  const char *below = getenv("STALL_BELOW"), *flag = getenv("STALL_WHILE");
  char path[PATH_MAX];
  ssize_t length = readlink(link, path, sizeof path - 1);
  if (!below || !flag || length < 0) return;
  path[length] = 0;
  if (strncmp(path, below, strlen(below)) != 0) return;
  while (access(flag, F_OK) == 0) {
    struct timespec pause = {0, 20000000};
    nanosleep(&pause, NULL);
  }
}

int fsync(int fd) {
  char link[64];
  snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
  wait_below(link);
  return (int)syscall(SYS_fsync, fd);
}

/* The paths are /proc/self/fd/N/name: the directory is what N leads to. */
int unlink(const char *path) {
  char directory[PATH_MAX];
  snprintf(directory, sizeof directory, "%s", path);
  char *slash = strrchr(directory, '/');
  if (slash) {
    *slash = 0;
    wait_below(directory);
  }
  return (int)syscall(SYS_unlinkat, AT_FDCWD, path, 0);
}
