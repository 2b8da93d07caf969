/* Preloaded into a program: calls about files below one of the directories of $STALL_BELOW, joined by colons,
   wait as long as the file $STALL_WHILE is there, and make the directory $STALL_WHILE.met. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <fcntl.h>
#include <limits.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/un.h>
#include <time.h>
#include <unistd.h>

#define PROC "/proc/self/fd/"
#define NEXT(name) ((__typeof__(&name))dlsym(RTLD_NEXT, #name))

static int is_below(const char *path, const char *directories) {
  for (const char *each = directories; *each;) {
    size_t length = strcspn(each, ":");
    if (length && strncmp(path, each, length) == 0) return 1;
    each += length + (each[length] == ':');
  }
  return 0;
}

static void wait_at(const char *path) {
  const char *below = getenv("STALL_BELOW"), *flag = getenv("STALL_WHILE");
  if (!below || !flag || !is_below(path, below)) return;
  char met[PATH_MAX];
  snprintf(met, sizeof met, "%s.met", flag);
  while (syscall(SYS_faccessat, AT_FDCWD, flag, F_OK) == 0) {
    syscall(SYS_mkdirat, AT_FDCWD, met, 0700);
    struct timespec pause = {0, 20000000};
    nanosleep(&pause, NULL);
  }
}

/* Many paths are /proc/self/fd/N/name: the directory is what N leads to. */
static void wait_below(const char *path) {
  char link[64], target[PATH_MAX];
  if (strncmp(path, PROC, strlen(PROC)) != 0) return wait_at(path);
  snprintf(link, sizeof link, PROC "%d", atoi(path + strlen(PROC)));
  ssize_t length = readlink(link, target, sizeof target - 1);
  if (length < 0) return;
  target[length] = 0;
  wait_at(target);
}

int fsync(int fd) {
  char link[64];
  snprintf(link, sizeof link, PROC "%d", fd);
  wait_below(link);
  return (int)syscall(SYS_fsync, fd);
}

ssize_t write(int fd, const void *bytes, size_t length) {
  char link[64];
  snprintf(link, sizeof link, PROC "%d", fd);
  wait_below(link);
  return (ssize_t)syscall(SYS_write, fd, bytes, length);
}

ssize_t read(int fd, void *bytes, size_t length) {
  char link[64];
  snprintf(link, sizeof link, PROC "%d", fd);
  wait_below(link);
  return (ssize_t)syscall(SYS_read, fd, bytes, length);
}

int unlink(const char *path) {
  wait_below(path);
  return (int)syscall(SYS_unlinkat, AT_FDCWD, path, 0);
}

int mkdir(const char *path, mode_t mode) {
  wait_below(path);
  return (int)syscall(SYS_mkdirat, AT_FDCWD, path, mode);
}

int rename(const char *from, const char *to) {
  wait_below(to);
  return (int)syscall(SYS_renameat2, AT_FDCWD, from, AT_FDCWD, to, 0);
}

int utimensat(int directory, const char *path, const struct timespec times[2], int flags) {
  wait_below(path);
  return (int)syscall(SYS_utimensat, directory, path, times, flags);
}

int bind(int fd, const struct sockaddr *address, socklen_t length) {
  if (address->sa_family == AF_UNIX) wait_below(((const struct sockaddr_un *)address)->sun_path);
  return NEXT(bind)(fd, address, length);
}

int connect(int fd, const struct sockaddr *address, socklen_t length) {
  if (address->sa_family == AF_UNIX) wait_below(((const struct sockaddr_un *)address)->sun_path);
  return NEXT(connect)(fd, address, length);
}

int open(const char *path, int flags, ...) {
  va_list rest;
  va_start(rest, flags);
  mode_t mode = va_arg(rest, mode_t);
  va_end(rest);
  wait_below(path);
  return (int)syscall(SYS_openat, AT_FDCWD, path, flags | O_LARGEFILE, mode);
}

int open64(const char *path, int flags, ...) {
  va_list rest;
  va_start(rest, flags);
  mode_t mode = va_arg(rest, mode_t);
  va_end(rest);
  return open(path, flags, mode);
}

int statx(int directory, const char *restrict path, int flags, unsigned mask, struct statx *restrict result) {
  wait_below(path);
  return (int)syscall(SYS_statx, directory, path, flags, mask, result);
}

/* libuv calls statx by its number. */
long syscall(long number, ...) {
  va_list rest;
  long a[6];
  va_start(rest, number);
  for (int i = 0; i < 6; i++) a[i] = va_arg(rest, long);
  va_end(rest);
  if (number == SYS_statx) wait_below((const char *)a[1]);
  static long (*next)(long, ...);
  if (!next) next = NEXT(syscall);
  return next(number, a[0], a[1], a[2], a[3], a[4], a[5]);
}
