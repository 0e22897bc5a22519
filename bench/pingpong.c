/* A bare ping-pong of messages over TCP between two processes: what `goodput measure --messages` is
 * held against. No protocol, no histogram, no second thread. Built and run by `cargo xtask bench
 * measure`:
 *
 *     pingpong serve ADDRESS PORT BYTES
 *     pingpong ping ADDRESS PORT BYTES SECONDS
 *
 * The server sends every message of one connection back and ends with it. The client leaves the first
 * tenth of the time out and prints, for half a round trip in nanoseconds: count, mean, least, median,
 * 99th percentile. The mean is the whole time over the round trips; each one is also timed by one
 * reading of the clock.
 */
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

enum { SAMPLES_MAX = 1 << 22 };

static void die(const char *what) {
    perror(what);
    exit(1);
}

static uint64_t now_ns(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
}

/* Fills the buffer; 0 when the stream ends before its first byte. */
static int read_all(int fd, char *buffer, size_t bytes) {
    size_t have = 0;
    while (have < bytes) {
        ssize_t n = read(fd, buffer + have, bytes - have);
        if (n < 0) die("read");
        if (n == 0) return 0;
        have += (size_t)n;
    }
    return 1;
}

static void write_all(int fd, const char *buffer, size_t bytes) {
    while (bytes > 0) {
        ssize_t n = write(fd, buffer, bytes);
        if (n < 0) die("write");
        buffer += n;
        bytes -= (size_t)n;
    }
}

static int by_value(const void *a, const void *b) {
    uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;
    return (x > y) - (x < y);
}

static void serve(int fd, const struct sockaddr_in *address, char *message, size_t bytes) {
    int one = 1;
    setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &one, sizeof one);
    if (bind(fd, (const struct sockaddr *)address, sizeof *address) != 0) die("bind");
    if (listen(fd, 1) != 0) die("listen");
    int peer = accept(fd, NULL, NULL);
    if (peer < 0) die("accept");
    setsockopt(peer, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one);
    while (read_all(peer, message, bytes)) write_all(peer, message, bytes);
}

static void ping(int fd, const struct sockaddr_in *address, char *message, size_t bytes,
                 double seconds) {
    int one = 1, tries = 0;
    while (connect(fd, (const struct sockaddr *)address, sizeof *address) != 0) {
        if (++tries == 1000) die("connect");
        usleep(5000);
        close(fd);
        fd = socket(AF_INET, SOCK_STREAM, 0);
    }
    setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one);
    uint64_t *samples = malloc(SAMPLES_MAX * sizeof *samples);
    if (samples == NULL) die("malloc");
    memset(samples, 0, SAMPLES_MAX * sizeof *samples);
    uint64_t length = (uint64_t)(seconds * 1e9), start = now_ns();
    uint64_t counted = start + length / 10, end = start + length, last = start, begun = 0;
    size_t count = 0;
    while (last < end && count < SAMPLES_MAX) {
        write_all(fd, message, bytes);
        if (!read_all(fd, message, bytes)) die("closed");
        uint64_t now = now_ns();
        if (begun != 0) samples[count++] = now - last;
        else if (now >= counted) begun = now;
        last = now;
    }
    if (count == 0) die("nothing counted");
    qsort(samples, count, sizeof *samples, by_value);
    double mean = (double)(last - begun) / (double)count;
    printf("%zu %.1f %.1f %.1f %.1f\n", count, mean / 2, (double)samples[0] / 2,
           (double)samples[(count - 1) / 2] / 2, (double)samples[(count - 1) * 99 / 100] / 2);
}

int main(int argc, char **argv) {
    if (argc < 5) {
        fprintf(stderr, "pingpong serve|ping ADDRESS PORT BYTES [SECONDS]\n");
        return 2;
    }
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_port = htons((uint16_t)atoi(argv[3]))};
    if (inet_pton(AF_INET, argv[2], &address.sin_addr) != 1) die("address");
    size_t bytes = (size_t)atol(argv[4]);
    if (bytes == 0) die("bytes");
    char *message = calloc(1, bytes);
    int fd = socket(AF_INET, SOCK_STREAM, 0);
    if (message == NULL || fd < 0) die("socket");
    if (strcmp(argv[1], "serve") == 0) serve(fd, &address, message, bytes);
    else ping(fd, &address, message, bytes, argc > 5 ? atof(argv[5]) : 1.0);
    return 0;
}
