// Puts load on a Unix socket, the same for every server, and prints what came of it as one line of JSON.
//
//   load ask ipc|http SOCKET PID CONNECTIONS SECONDS      each connection asks again as soon as it is answered
//   load requests ipc|http SOCKET PID CONNECTIONS COUNT   the same, until so many are answered
//   load connect ipc SOCKET PID COUNT AT_ONCE             each connection is made, asks once and is closed
//   load burst ipc SOCKET PID COUNT                       all connect while the server is stopped for 0.6 s
//   load subscribe ipc SOCKET PID COUNT                   all subscribe; each line on stdin waits for one push to all
//
// CPU time is that of all threads of process PID, in ns, as the scheduler counts it.
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <time.h>
#include <unistd.h>

#include "measure.h"

#define WARM_UP_NS 100000000ull
#define PAUSE_NS 600000000ull
#define PATIENCE_NS 60000000000ull
#define MAX_LATENCIES (8 * 1024 * 1024)
#define MAX_EVENTS 1024
#define MAX_UNANSWERED 128

static const char ASK_IPC[] = "{\"type\":\"token.get\",\"data\":{\"id\":\"1\"}}\f";
static const char ASK_HTTP[] = "GET /v1/token HTTP/1.1\r\nHost: localhost\r\n\r\n";
static const char SUBSCRIBE[] = "{\"type\":\"token.subscribe\",\"data\":{\"id\":\"1\"}}\f";

struct connection {
  int fd;
  uint64_t asked_at;
  size_t received;
};

static int is_http;
static const char *request;
static size_t request_length;
static size_t http_length; // Of one whole answer; learnt from the first.
static pid_t server_pid;
static struct sockaddr_un address = {.sun_family = AF_UNIX};
static int epoll;
static char buffer[256 * 1024];

static uint64_t own_cpu_ns(void) {
  struct timespec ran;
  clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &ran);
  return ran.tv_sec * 1000000000ull + ran.tv_nsec;
}

// -1 where the server refuses: its queue of connections is full, or nothing listens.
static int open_connection(struct connection *connection) {
  int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
  if (fd < 0) die("socket");
  if (connect(fd, (struct sockaddr *)&address, sizeof address) < 0) {
    close(fd);
    return -1;
  }
  struct epoll_event event = {.events = EPOLLIN, .data.ptr = connection};
  if (epoll_ctl(epoll, EPOLL_CTL_ADD, fd, &event) < 0) die("epoll_ctl");
  connection->fd = fd;
  connection->received = 0;
  return 0;
}

static int ask(struct connection *connection) {
  connection->asked_at = now_ns();
  connection->received = 0;
  return write(connection->fd, request, request_length) == (ssize_t)request_length ? 0 : -1;
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

// 1: the answer is whole; 0: not yet; -1: the connection is lost.
static int receive(struct connection *connection) {
  ssize_t length = read(connection->fd, buffer, sizeof buffer - 1);
  if (length < 0 && errno == EAGAIN) return 0;
  if (length <= 0) return -1;
  connection->received += length;
  if (!is_http) return buffer[length - 1] == '\f';
  if (http_length == 0) http_length = http_answer_length(length);
  return connection->received == http_length;
}

static int wait_events(struct epoll_event *events, uint64_t until) {
  uint64_t now = now_ns();
  if (now >= until) return 0;
  int count = epoll_wait(epoll, events, MAX_EVENTS, (until - now) / 1000000 + 1);
  if (count < 0 && errno != EINTR) die("epoll_wait");
  return count < 0 ? 0 : count;
}

// Opens so many connections, never more of them at once than every server's queue holds, and has each ask and be
// answered once.
static struct connection *open_all(size_t count) {
  struct connection *connections = calloc(count, sizeof *connections);
  struct epoll_event events[MAX_EVENTS];
  size_t answered = 0;
  for (size_t begun = 0; answered < count;) {
    if (begun < count && begun - answered < MAX_UNANSWERED) {
      if (open_connection(&connections[begun]) < 0 || ask(&connections[begun]) < 0) die("connect");
      begun++;
      continue;
    }
    int ready = wait_events(events, now_ns() + PATIENCE_NS);
    if (ready == 0) die("no answer");
    for (int i = 0; i < ready; i++) {
      int answer = receive(events[i].data.ptr);
      if (answer < 0) die("a connection was lost");
      answered += answer;
    }
  }
  return connections;
}

static int compare(const void *one, const void *other) {
  uint32_t a = *(const uint32_t *)one, b = *(const uint32_t *)other;
  return a < b ? -1 : a > b;
}

static int run_ask(size_t count, double seconds) {
  struct connection *connections = open_all(count);
  uint32_t *latencies = malloc(MAX_LATENCIES * sizeof *latencies);
  size_t measured = 0, lost = 0;
  for (size_t i = 0; i < count; i++) {
    if (ask(&connections[i]) < 0) die("write");
  }
  uint64_t from = now_ns() + WARM_UP_NS, until = from + (uint64_t)(seconds * 1e9), ended = 0;
  uint64_t server_cpu = 0, own_cpu = 0;
  int is_measuring = 0;
  struct epoll_event events[MAX_EVENTS];
  while (ended == 0) {
    int ready = wait_events(events, until + PATIENCE_NS);
    uint64_t now = now_ns();
    if (!is_measuring && now >= from) {
      is_measuring = 1;
      from = now;
      until = from + (uint64_t)(seconds * 1e9);
      server_cpu = cpu_ns(server_pid);
      own_cpu = own_cpu_ns();
      measured = 0;
    }
    if (now >= until) {
      ended = now;
      server_cpu = cpu_ns(server_pid) - server_cpu;
      own_cpu = own_cpu_ns() - own_cpu;
      break;
    }
    for (int i = 0; i < ready; i++) {
      struct connection *connection = events[i].data.ptr;
      int answer = receive(connection);
      if (answer == 0) continue;
      uint64_t at = now_ns();
      if (measured < MAX_LATENCIES) latencies[measured] = at - connection->asked_at;
      if (answer < 0 || ask(connection) < 0) {
        lost++;
        close(connection->fd);
      } else measured++;
    }
  }
  size_t known = measured < MAX_LATENCIES ? measured : MAX_LATENCIES;
  if (known == 0) die("nothing was answered");
  qsort(latencies, known, sizeof *latencies, compare);
  printf("{\"requests\":%zu,\"lost\":%zu,\"seconds\":%.6f,\"cpuNs\":%llu,\"generatorCpuNs\":%llu,\"p50Ns\":%u,\"p99Ns\":%u}\n",
         measured, lost, (ended - from) / 1e9, (unsigned long long)server_cpu, (unsigned long long)own_cpu,
         latencies[known / 2], latencies[(size_t)(known * 0.99)]);
  return 0;
}

static int run_requests(size_t count, size_t requests) {
  uint64_t from = now_ns();
  struct connection *connections = open_all(count);
  size_t answered = count;
  struct epoll_event events[MAX_EVENTS];
  for (size_t i = 0; i < count; i++) {
    if (ask(&connections[i]) < 0) die("write");
  }
  while (answered < requests) {
    int ready = wait_events(events, from + PATIENCE_NS);
    if (ready == 0) die("requests");
    for (int i = 0; i < ready; i++) {
      int answer = receive(events[i].data.ptr);
      if (answer < 0 || (answer > 0 && ask(events[i].data.ptr) < 0)) die("a connection was lost");
      answered += answer;
    }
  }
  printf("{\"answered\":%zu,\"seconds\":%.6f}\n", answered, (now_ns() - from) / 1e9);
  return 0;
}

static int run_connect(size_t count, size_t at_once) {
  struct connection *connections = calloc(at_once, sizeof *connections);
  size_t begun = 0, answered = 0, lost = 0;
  uint64_t from = now_ns(), server_cpu = cpu_ns(server_pid);
  struct epoll_event events[MAX_EVENTS];
  for (size_t i = 0; i < at_once && begun < count; i++, begun++) {
    if (open_connection(&connections[i]) < 0 || ask(&connections[i]) < 0) lost++;
  }
  while (answered + lost < count) {
    int ready = wait_events(events, from + PATIENCE_NS);
    if (ready == 0) break;
    for (int i = 0; i < ready; i++) {
      struct connection *connection = events[i].data.ptr;
      int answer = receive(connection);
      if (answer == 0) continue;
      if (answer < 0) lost++;
      else answered++;
      close(connection->fd);
      while (begun < count) {
        begun++;
        if (open_connection(connection) == 0 && ask(connection) == 0) break;
        lost++;
      }
    }
  }
  double seconds = (now_ns() - from) / 1e9;
  printf("{\"answered\":%zu,\"lost\":%zu,\"seconds\":%.6f,\"cpuNs\":%llu}\n", answered, count - answered, seconds,
         (unsigned long long)(cpu_ns(server_pid) - server_cpu));
  return 0;
}

static int run_burst(size_t count) {
  struct connection *connections = calloc(count, sizeof *connections);
  size_t refused = 0, answered = 0;
  uint64_t from = now_ns();
  if (kill(server_pid, SIGSTOP) < 0) die("kill");
  for (size_t i = 0; i < count; i++) {
    if (open_connection(&connections[i]) < 0 || ask(&connections[i]) < 0) refused++;
  }
  uint64_t passed = now_ns() - from;
  if (passed < PAUSE_NS) usleep((PAUSE_NS - passed) / 1000);
  kill(server_pid, SIGCONT);
  struct epoll_event events[MAX_EVENTS];
  while (answered < count - refused) {
    int ready = wait_events(events, from + PATIENCE_NS);
    if (ready == 0) break;
    for (int i = 0; i < ready; i++) {
      struct connection *connection = events[i].data.ptr;
      int answer = receive(connection);
      if (answer == 0) continue;
      if (answer > 0) answered++;
      close(connection->fd);
    }
  }
  printf("{\"refused\":%zu,\"answered\":%zu}\n", refused, answered);
  return 0;
}

// Waits for one whole answer on every connection.
static void await_all(size_t count) {
  struct epoll_event events[MAX_EVENTS];
  uint64_t until = now_ns() + PATIENCE_NS, first = 0, last = 0;
  size_t seen = 0;
  while (seen < count) {
    int ready = wait_events(events, until);
    if (ready == 0) break;
    for (int i = 0; i < ready; i++) {
      int answer = receive(events[i].data.ptr);
      if (answer < 0) {
        fprintf(stderr, "a subscriber lost its connection\n");
        exit(1);
      }
      if (answer == 0) continue;
      last = now_ns();
      if (first == 0) first = last;
      seen++;
    }
  }
  printf("{\"seen\":%zu,\"firstAtNs\":\"%llu\",\"lastAtNs\":\"%llu\"}\n", seen, (unsigned long long)first,
         (unsigned long long)last);
  fflush(stdout);
}

static int run_subscribe(size_t count) {
  struct connection *connections = open_all(count);
  printf("{\"subscribed\":%zu}\n", count);
  fflush(stdout);
  for (int c; (c = getchar()) != EOF;) {
    if (c == '\n') await_all(count);
  }
  free(connections);
  return 0;
}

int main(int argc, char **argv) {
  if (argc < 6) return 64;
  const char *mode = argv[1];
  is_http = strcmp(argv[2], "http") == 0;
  strncpy(address.sun_path, argv[3], sizeof address.sun_path - 1);
  server_pid = atoi(argv[4]);
  size_t count = strtoul(argv[5], NULL, 10);
  request = is_http ? ASK_HTTP : strcmp(mode, "subscribe") == 0 ? SUBSCRIBE : ASK_IPC;
  request_length = strlen(request);
  epoll = epoll_create1(EPOLL_CLOEXEC);
  struct rlimit files;
  getrlimit(RLIMIT_NOFILE, &files);
  files.rlim_cur = files.rlim_max;
  setrlimit(RLIMIT_NOFILE, &files);
  signal(SIGPIPE, SIG_IGN);
  if (strcmp(mode, "ask") == 0 && argc == 7) return run_ask(count, atof(argv[6]));
  if (strcmp(mode, "requests") == 0 && argc == 7) return run_requests(count, strtoul(argv[6], NULL, 10));
  if (strcmp(mode, "connect") == 0 && argc == 7) return run_connect(count, strtoul(argv[6], NULL, 10));
  if (strcmp(mode, "burst") == 0) return run_burst(count);
  if (strcmp(mode, "subscribe") == 0) return run_subscribe(count);
  return 64;
}
