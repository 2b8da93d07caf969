// A token that is written to many files: the system calls that the daemon makes for it, and how long they take.
//
//   rotation write DIRECTORY COUNT TEXT   replaces f0, f1 … as the daemon does, call for call
//   rotation watch DIRECTORY COUNT        at each line on stdin: says "watching", waits for one rotation and
//                                         prints how long a file took, in ns
#define _GNU_SOURCE
#include <fcntl.h>
#include <poll.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/inotify.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#define PATIENCE_MS 10000

static void die(const char *what) {
  perror(what);
  exit(1);
}

static uint64_t now_ns(void) {
  struct timespec now;
  clock_gettime(CLOCK_MONOTONIC, &now);
  return now.tv_sec * 1000000000ull + now.tv_nsec;
}

static int is_there(const char *path) {
  struct statx stats;
  return statx(AT_FDCWD, path, AT_SYMLINK_NOFOLLOW, STATX_ALL, &stats) == 0;
}

static void look_at(int fd) {
  struct statx stats;
  if (statx(fd, "", AT_EMPTY_PATH, STATX_ALL, &stats) < 0) die("statx");
}

static void replace(const char *directory, size_t index, const char *path, const char *text, size_t length) {
  char temporary[4096];
  snprintf(temporary, sizeof temporary, "%s/.f%zu.%012zx.kyc", directory, index, index);
  int parent = open(directory, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  if (parent < 0) die(directory);
  look_at(parent);
  is_there(path);
  int fd = open(temporary, O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0600);
  if (fd < 0) die(temporary);
  look_at(fd);
  if (write(fd, text, length) != (ssize_t)length) die("write");
  if (fsync(fd) < 0) die("fsync");
  if (rename(temporary, path) < 0) die("rename");
  close(fd);
  if (fsync(parent) < 0) die("fsync");
  close(parent);
}

static int run_write(const char *directory, size_t count, const char *text) {
  size_t length = strlen(text);
  char (*paths)[4096] = malloc(count * sizeof *paths);
  for (size_t i = 0; i < count; i++) snprintf(paths[i], sizeof *paths, "%s/f%zu", directory, i);
  for (size_t i = 0; i < count; i++) replace(directory, i, paths[i], text, length);
  return 0;
}

static uint64_t await_event(int watch) {
  char event[4096] __attribute__((aligned(8)));
  struct pollfd waiting = {.fd = watch, .events = POLLIN};
  if (poll(&waiting, 1, PATIENCE_MS) <= 0) die("no rotation was seen");
  uint64_t at = now_ns();
  if (read(watch, event, sizeof event) < 0) die("read");
  return at;
}

// From the moment the first file is replaced to the one when the last is. Only these two are watched: every event costs
// whoever causes it.
static void watch_one(const char *directory, size_t count) {
  char path[4096];
  int first = inotify_init1(IN_CLOEXEC), last = inotify_init1(IN_CLOEXEC);
  snprintf(path, sizeof path, "%s/f0", directory);
  if (inotify_add_watch(first, path, IN_DELETE_SELF | IN_ONESHOT) < 0) die(path);
  snprintf(path, sizeof path, "%s/f%zu", directory, count - 1);
  if (inotify_add_watch(last, path, IN_DELETE_SELF | IN_ONESHOT) < 0) die(path);
  printf("watching\n");
  fflush(stdout);
  uint64_t from = await_event(first);
  printf("%llu\n", (unsigned long long)((await_event(last) - from) / (count - 1)));
  fflush(stdout);
  close(first);
  close(last);
}

int main(int argc, char **argv) {
  if (argc < 4) return 64;
  size_t count = strtoul(argv[3], NULL, 10);
  if (strcmp(argv[1], "write") == 0) return argc == 5 ? run_write(argv[2], count, argv[4]) : 64;
  for (int c; (c = getchar()) != EOF;) {
    if (c == '\n') watch_one(argv[2], count);
  }
  return 0;
}
