// Time and processor time, in ns; included by load.c and starts.c.
#include <dirent.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

static void die(const char *what) {
  perror(what);
  exit(1);
}

static uint64_t now_ns(void) {
  struct timespec now;
  clock_gettime(CLOCK_MONOTONIC, &now);
  return now.tv_sec * 1000000000ull + now.tv_nsec;
}

// Of all threads of the process, as the scheduler counts it.
static uint64_t cpu_ns(pid_t pid) {
  char path[600];
  snprintf(path, sizeof path, "/proc/%d/task", pid);
  DIR *tasks = opendir(path);
  if (tasks == NULL) die(path);
  uint64_t sum = 0;
  for (struct dirent *task; (task = readdir(tasks)) != NULL;) {
    if (task->d_name[0] == '.') continue;
    snprintf(path, sizeof path, "/proc/%d/task/%s/schedstat", pid, task->d_name);
    FILE *file = fopen(path, "r");
    unsigned long long ran = 0;
    if (file == NULL) continue;
    if (fscanf(file, "%llu", &ran) == 1) sum += ran;
    fclose(file);
  }
  closedir(tasks);
  return sum;
}
