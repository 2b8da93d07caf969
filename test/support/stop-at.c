/* Preloaded into a program: it stops itself (SIGSTOP) at the write that the file $STOP_AT names, once, as
   "before TEXT" or "after TEXT". */
#define _GNU_SOURCE
#include <fcntl.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <unistd.h>

static char wanted[256];

/* Which of the two is asked for, if any of these bytes are the text; '\0': none. */
static char moment_of(const struct iovec *parts, int count) {
  const char *file = getenv("STOP_AT");
  int fd = file ? open(file, O_RDONLY | O_CLOEXEC) : -1;
  if (fd < 0) return 0;
  ssize_t length = read(fd, wanted, sizeof wanted - 1);
  close(fd);
  if (length <= 0) return 0;
  wanted[length] = 0;
  const char *text = strchr(wanted, ' ');
  if (!text) return 0;
  text += 1;
  for (int part = 0; part < count; part++)
    if (memmem(parts[part].iov_base, parts[part].iov_len, text, strlen(text))) {
      unlink(file);
      return wanted[0];
    }
  return 0;
}

static void stop(void) { kill(getpid(), SIGSTOP); }

#define AROUND(parts, count, call)                 \
  char moment = moment_of((parts), (int)(count));  \
  if (moment == 'b') stop();                       \
  ssize_t result = (call);                         \
  if (moment == 'a') stop();                       \
  return result;

ssize_t write(int fd, const void *bytes, size_t length) {
  struct iovec part = {(void *)bytes, length};
  AROUND(&part, 1, syscall(SYS_write, fd, bytes, length))
}

ssize_t writev(int fd, const struct iovec *parts, int count) {
  AROUND(parts, count, syscall(SYS_writev, fd, parts, count))
}

ssize_t sendmsg(int fd, const struct msghdr *message, int flags) {
  AROUND(message->msg_iov, message->msg_iovlen, syscall(SYS_sendmsg, fd, message, flags))
}
