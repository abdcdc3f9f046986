// Calls of which some are slow, and prints those with their times: `slow from to`, in ns of CLOCK_MONOTONIC; `late from to` where the
// machine has made one of the others slow, or what is around it. Some of the others call `rare`: `rare at`.
//
// slow rounds
#define _GNU_SOURCE
#include <sched.h>
#include <stdlib.h>
#include <time.h>

#include "count.h"

// One call in so many is slow, and one in so many calls `rare`.
#define SLOW_EACH 40
#define NAP_NS 150000000
// What is printed as slow.
#define SLOW_NS 100000000

static volatile long sink;

// All of it is in one ring: what stands in front of a ring's first PSB is no part of a capture.
__attribute__((constructor(101))) static void stay_on_cpu_0(void)
{
    cpu_set_t set;
    CPU_ZERO(&set);
    CPU_SET(0, &set);
    sched_setaffinity(0, sizeof(set), &set);
}

static unsigned long now_ns(void)
{
    struct timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    return time.tv_sec * 1000000000ul + time.tv_nsec;
}

static void nap(void)
{
    struct timespec time = { 0, NAP_NS };
    nanosleep(&time, NULL);
}

NI void rare(int x)
{
    sink -= x;
}

NI void work(int x)
{
    for (int i = 0; i < 4; i++)
        sink += x;
    if (x % SLOW_EACH == SLOW_EACH - 1)
        nap();
    if (x % SLOW_EACH == SLOW_EACH / 2)
        rare(x);
}

int main(int argc, char **argv)
{
    int rounds = argc > 1 ? atoi(argv[1]) : SLOW_EACH;
    for (int i = 0; i < rounds; i++) {
        unsigned long from = now_ns();
        work(i);
        unsigned long to = now_ns();
        int is_slow = to - from > SLOW_NS, is_rare = i % SLOW_EACH == SLOW_EACH / 2;
        if (is_slow)
            printf("%s %lu %lu\n", i % SLOW_EACH == SLOW_EACH - 1 ? "slow" : "late", from, to);
        if (is_rare)
            printf("rare %lu\n", from);
        if (!is_slow && !is_rare)
            continue;
        // What comes next is not copied with it.
        nap();
        nap();
        nap();
    }
    return 0;
}
