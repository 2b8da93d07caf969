// load ipc|http|push SOCKET PID CONNECTIONS SECONDS
//
// ipc, http: each connection asks again as soon as it is answered, on ipc with another id each time. push:
// each connection subscribes ten times; then a refresh, as often as SECONDS says, and all wait for the token.
// Prints one line of JSON. CPU time is that of all threads of process PID, in ns, as the scheduler counts it;
// p99 is of the waits for answers, in ns.
#define _GNU_SOURCE
#include <dirent.h>
#include <errno.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <time.h>
#include <unistd.h>

#define WARM_UP_NS 300000000ull
#define MAX_EVENTS 1024
#define SUBSCRIPTIONS 10
#define MAX_WAITS 10000000

static const char ASK_HTTP[] = "GET /v1/token HTTP/1.1\r\nHost: localhost\r\n\r\n";
static const char REFRESH[] = "{\"type\":\"refresh.request\",\"data\":{\"id\":\"r\"}}\f";

struct connection {
  int fd;
  uint64_t asked_at;
};

static int is_http;
static unsigned long id;
static struct sockaddr_un address = {.sun_family = AF_UNIX};
static int epoll;
static char buffer[256 * 1024];
static uint64_t *waits;
static size_t wait_count;

static void die(const char *what) {
  perror(what);
  exit(1);
}

static uint64_t now_ns(void) {
  struct timespec now;
  clock_gettime(CLOCK_MONOTONIC, &now);
  return now.tv_sec * 1000000000ull + now.tv_nsec;
}

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

static void send_text(struct connection *connection, const char *text) {
  ssize_t length = strlen(text);
  if (write(connection->fd, text, length) != length) die("write");
}

static void ask(struct connection *connection) {
  char text[128];
  if (!is_http) snprintf(text, sizeof text, "{\"type\":\"token.get\",\"data\":{\"id\":\"%lu\"}}\f", ++id);
  connection->asked_at = now_ns();
  send_text(connection, is_http ? ASK_HTTP : text);
}

static void open_connection(struct connection *connection) {
  int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
  if (fd < 0 || connect(fd, (struct sockaddr *)&address, sizeof address) < 0) die("connect");
  struct epoll_event event = {.events = EPOLLIN, .data.ptr = connection};
  if (epoll_ctl(epoll, EPOLL_CTL_ADD, fd, &event) < 0) die("epoll_ctl");
  connection->fd = fd;
}

static ssize_t read_some(struct connection *connection) {
  ssize_t length = read(connection->fd, buffer, sizeof buffer - 1);
  if (length < 0 && errno == EAGAIN) return 0;
  if (length <= 0) die("a connection was lost");
  buffer[length] = 0;
  return length;
}

// Returns 1 if the answer is whole: it has one form feed or, over HTTP, one closing brace, at its end.
static int receive(struct connection *connection) {
  ssize_t length = read_some(connection);
  return length > 0 && buffer[length - 1] == (is_http ? '}' : '\f');
}

static int wait_events(struct epoll_event *events) {
  int count = epoll_wait(epoll, events, MAX_EVENTS, 60000);
  if (count <= 0 && errno != EINTR) die("no answer");
  return count < 0 ? 0 : count;
}

static void read_frames(size_t frames) {
  struct epoll_event events[MAX_EVENTS];
  while (frames > 0) {
    int ready = wait_events(events);
    for (int i = 0; i < ready; i++) {
      ssize_t length = read_some(events[i].data.ptr);
      for (ssize_t at = 0; at < length; at++) frames -= buffer[at] == '\f';
    }
  }
}

static int by_size(const void *one, const void *other) {
  uint64_t a = *(const uint64_t *)one, b = *(const uint64_t *)other;
  return a < b ? -1 : a > b;
}

static void print(size_t count, uint64_t ns, uint64_t cpu) {
  qsort(waits, wait_count, sizeof *waits, by_size);
  uint64_t p99 = wait_count == 0 ? 0 : waits[wait_count * 99 / 100];
  printf("{\"count\":%zu,\"seconds\":%.6f,\"cpuNs\":%llu,\"p99Ns\":%llu}\n", count, ns / 1e9,
         (unsigned long long)cpu, (unsigned long long)p99);
}

static void push(struct connection *connections, size_t count, pid_t server, int refreshes) {
  char text[128];
  for (size_t i = 0; i < count; i++)
    for (int each = 0; each < SUBSCRIPTIONS; each++) {
      snprintf(text, sizeof text, "{\"type\":\"token.subscribe\",\"data\":{\"id\":\"%d\"}}\f", each);
      send_text(&connections[i], text);
    }
  read_frames(count * SUBSCRIPTIONS);
  struct connection asker;
  open_connection(&asker);
  uint64_t from = now_ns(), cpu = cpu_ns(server);
  for (int i = 0; i < refreshes; i++) {
    send_text(&asker, REFRESH);
    read_frames(count * SUBSCRIPTIONS + 1);
  }
  print(refreshes, now_ns() - from, cpu_ns(server) - cpu);
}

int main(int argc, char **argv) {
  if (argc != 6) return 64;
  is_http = strcmp(argv[1], "http") == 0;
  strncpy(address.sun_path, argv[2], sizeof address.sun_path - 1);
  pid_t server = atoi(argv[3]);
  size_t count = strtoul(argv[4], NULL, 10);
  uint64_t span = atof(argv[5]) * 1e9, cpu = 0;
  epoll = epoll_create1(EPOLL_CLOEXEC);
  waits = malloc(MAX_WAITS * sizeof *waits);
  signal(SIGPIPE, SIG_IGN);
  struct connection *connections = calloc(count, sizeof *connections);
  for (size_t i = 0; i < count; i++) open_connection(&connections[i]);
  if (strcmp(argv[1], "push") == 0) return push(connections, count, server, atoi(argv[5])), 0;
  struct epoll_event events[MAX_EVENTS];
  for (size_t i = 0; i < count; i++) ask(&connections[i]);
  // All are accepted before the load begins.
  for (size_t answered = 0; answered < count;) {
    int ready = wait_events(events);
    for (int i = 0; i < ready; i++) answered += receive(events[i].data.ptr);
  }
  for (size_t i = 0; i < count; i++) ask(&connections[i]);
  uint64_t from = now_ns() + WARM_UP_NS, now = 0;
  int is_measuring = 0;
  while (!is_measuring || now < from + span) {
    int ready = wait_events(events);
    now = now_ns();
    if (!is_measuring && now >= from) {
      is_measuring = 1;
      from = now;
      cpu = cpu_ns(server);
      wait_count = 0;
    }
    for (int i = 0; i < ready; i++) {
      struct connection *connection = events[i].data.ptr;
      if (!receive(connection)) continue;
      if (wait_count == MAX_WAITS) die("too many answers");
      waits[wait_count++] = now_ns() - connection->asked_at;
      ask(connection);
    }
  }
  print(wait_count, now - from, cpu_ns(server) - cpu);
  return 0;
}
