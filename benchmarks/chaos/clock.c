/* A wall clock that can be set for one process tree: loaded with LD_PRELOAD, it adds the seconds that the file named by
   CHAOS_CLOCK holds to what the machine's clock says. Only the wall clock: as when a person or NTP sets it, the steady
   clock and everything that sleeps by it go on. (libfaketime 0.9.10 breaks absolute sleeps on the steady clock.) */
#define _GNU_SOURCE
#include <fcntl.h>
#include <stdlib.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <time.h>
#include <unistd.h>

static time_t shift(void) {
    static const char *name;
    char text[32] = {0};
    int fd;
    if (!name && !(name = getenv("CHAOS_CLOCK"))) return 0;
    if ((fd = open(name, O_RDONLY | O_CLOEXEC)) < 0) return 0;
    if (read(fd, text, sizeof text - 1) < 0) text[0] = 0;
    close(fd);
    return (time_t)atoll(text);
}

int clock_gettime(clockid_t id, struct timespec *at) {
    int failed = (int)syscall(SYS_clock_gettime, id, at);
    if (!failed && (id == CLOCK_REALTIME || id == CLOCK_REALTIME_COARSE)) at->tv_sec += shift();
    return failed;
}

int gettimeofday(struct timeval *restrict at, void *restrict zone) {
    struct timespec now;
    (void)zone;
    if (clock_gettime(CLOCK_REALTIME, &now)) return -1;
    at->tv_sec = now.tv_sec;
    at->tv_usec = now.tv_nsec / 1000;
    return 0;
}

time_t time(time_t *at) {
    struct timespec now;
    clock_gettime(CLOCK_REALTIME, &now);
    if (at) *at = now.tv_sec;
    return now.tv_sec;
}
