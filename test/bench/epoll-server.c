// epoll-server SOCKET TOKEN: the least a server in C can do on `ipc.sock`: epoll, frames that end in a form feed, and an
// answer that is ready.
#define _GNU_SOURCE
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#define BACKLOG 511
#define MAX_EVENTS 1024

static char answer[8192];
static size_t answer_length;

// 0: the connection is over.
static int serve(int fd) {
  char buffer[16 * 1024];
  ssize_t length = read(fd, buffer, sizeof buffer);
  for (ssize_t at = 0; at < length; at++) {
    if (buffer[at] == '\f' && write(fd, answer, answer_length) != (ssize_t)answer_length) return 0;
  }
  return length > 0;
}

static int fail(const char *what) {
  perror(what);
  return 1;
}

int main(int argc, char **argv) {
  if (argc != 3) return 64;
  struct sockaddr_un address = {.sun_family = AF_UNIX};
  strncpy(address.sun_path, argv[1], sizeof address.sun_path - 1);
  answer_length = snprintf(answer, sizeof answer,
                           "{\"type\":\"token.result\",\"data\":{\"id\":\"1\",\"accessToken\":\"%s\",\"tokenType\":\"Bearer\","
                           "\"obtainedAt\":\"2026-01-01T00:00:00.000Z\",\"expiresAt\":\"2026-01-02T00:00:00.000Z\","
                           "\"expirySource\":\"jwt\",\"baseUrl\":\"http://127.0.0.1:12345\","
                           "\"refreshAt\":\"2026-01-01T16:00:00.000Z\",\"generation\":1,"
                           "\"fingerprint\":\"0123456789abcdef\",\"state\":\"ready\",\"stale\":false}}\f",
                           argv[2]);
  int listening = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
  if (bind(listening, (struct sockaddr *)&address, sizeof address) < 0) return fail("bind");
  if (listen(listening, BACKLOG) < 0) return fail("listen");
  int epoll = epoll_create1(EPOLL_CLOEXEC);
  struct epoll_event event = {.events = EPOLLIN, .data.fd = listening}, events[MAX_EVENTS];
  epoll_ctl(epoll, EPOLL_CTL_ADD, listening, &event);
  for (;;) {
    int ready = epoll_wait(epoll, events, MAX_EVENTS, -1);
    for (int i = 0; i < ready; i++) {
      int fd = events[i].data.fd;
      if (fd == listening) {
        event.data.fd = accept4(listening, NULL, NULL, SOCK_NONBLOCK | SOCK_CLOEXEC);
        if (event.data.fd >= 0) epoll_ctl(epoll, EPOLL_CTL_ADD, event.data.fd, &event);
      } else if (!serve(fd)) close(fd);
    }
  }
}
