// load ipc|http SOCKET PID CONNECTIONS SECONDS: each connection asks again as soon as it is answered, on ipc with another id
// each time. Prints one line of JSON. CPU time is that of all threads of process PID, in ns, as the scheduler counts it.
#define _GNU_SOURCE
#include <errno.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include "measure.h"

#define WARM_UP_NS 100000000ull
#define PATIENCE_NS 20000000000ull
#define MAX_EVENTS 1024
#define MAX_UNANSWERED 128

static const char ASK_HTTP[] = "GET /v1/token HTTP/1.1\r\nHost: localhost\r\n\r\n";

struct connection {
  int fd;
  size_t received;
};

static int is_http;
static size_t http_length; // Of one whole answer; learnt from the first.
static unsigned long id;
static struct sockaddr_un address = {.sun_family = AF_UNIX};
static int epoll;
static char buffer[256 * 1024];

static void ask(struct connection *connection) {
  char text[128];
  int length = is_http ? snprintf(text, sizeof text, "%s", ASK_HTTP)
                       : snprintf(text, sizeof text, "{\"type\":\"token.get\",\"data\":{\"id\":\"%lu\"}}\f", ++id);
  connection->received = 0;
  if (write(connection->fd, text, length) != length) die("write");
}

static void open_connection(struct connection *connection) {
  int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
  if (fd < 0 || connect(fd, (struct sockaddr *)&address, sizeof address) < 0) die("connect");
  struct epoll_event event = {.events = EPOLLIN, .data.ptr = connection};
  if (epoll_ctl(epoll, EPOLL_CTL_ADD, fd, &event) < 0) die("epoll_ctl");
  connection->fd = fd;
}

static size_t http_answer_length(ssize_t length) {
  char *body = memmem(buffer, length, "\r\n\r\n", 4);
  if (body == NULL) return 0;
  *body = 0;
  char *field = strcasestr(buffer, "\r\ncontent-length:");
  if (field == NULL || strncmp(buffer, "HTTP/1.1 200", 12) != 0) {
    fprintf(stderr, "not the answer that was expected: %s\n", buffer);
    exit(1);
  }
  return (body - buffer) + 4 + strtoul(field + 17, NULL, 10);
}

// Returns 1 if the answer is whole.
static int receive(struct connection *connection) {
  ssize_t length = read(connection->fd, buffer, sizeof buffer - 1);
  if (length < 0 && errno == EAGAIN) return 0;
  if (length <= 0) die("a connection was lost");
  connection->received += length;
  if (!is_http) return buffer[length - 1] == '\f';
  if (http_length == 0) http_length = http_answer_length(length);
  return connection->received == http_length;
}

static int wait_events(struct epoll_event *events) {
  int count = epoll_wait(epoll, events, MAX_EVENTS, PATIENCE_NS / 1000000);
  if (count <= 0 && errno != EINTR) die("no answer");
  return count < 0 ? 0 : count;
}

// Never more of them unanswered at once than every server's queue holds.
static struct connection *open_all(size_t count) {
  struct connection *connections = calloc(count, sizeof *connections);
  struct epoll_event events[MAX_EVENTS];
  size_t begun = 0, answered = 0;
  while (answered < count) {
    if (begun < count && begun - answered < MAX_UNANSWERED) {
      open_connection(&connections[begun]);
      ask(&connections[begun++]);
      continue;
    }
    int ready = wait_events(events);
    for (int i = 0; i < ready; i++) answered += receive(events[i].data.ptr);
  }
  return connections;
}

int main(int argc, char **argv) {
  if (argc != 6) return 64;
  is_http = strcmp(argv[1], "http") == 0;
  strncpy(address.sun_path, argv[2], sizeof address.sun_path - 1);
  pid_t server = atoi(argv[3]);
  size_t count = strtoul(argv[4], NULL, 10), answered = 0;
  uint64_t span = atof(argv[5]) * 1e9, cpu = 0;
  epoll = epoll_create1(EPOLL_CLOEXEC);
  struct rlimit files;
  getrlimit(RLIMIT_NOFILE, &files);
  files.rlim_cur = files.rlim_max;
  setrlimit(RLIMIT_NOFILE, &files);
  signal(SIGPIPE, SIG_IGN);
  struct connection *connections = open_all(count);
  for (size_t i = 0; i < count; i++) ask(&connections[i]);
  uint64_t from = now_ns() + WARM_UP_NS, now = 0;
  int is_measuring = 0;
  struct epoll_event events[MAX_EVENTS];
  while (!is_measuring || now < from + span) {
    int ready = wait_events(events);
    now = now_ns();
    if (!is_measuring && now >= from) {
      is_measuring = 1;
      from = now;
      cpu = cpu_ns(server);
      answered = 0;
    }
    for (int i = 0; i < ready; i++) {
      if (!receive(events[i].data.ptr)) continue;
      answered++;
      ask(events[i].data.ptr);
    }
  }
  printf("{\"requests\":%zu,\"seconds\":%.6f,\"cpuNs\":%llu}\n", answered, (now - from) / 1e9,
         (unsigned long long)(cpu_ns(server) - cpu));
  return 0;
}
