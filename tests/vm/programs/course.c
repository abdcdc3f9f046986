// A course of nested calls, by dice of its own: the same in each run. It stops itself as it enters one of them, and prints by
// their first letters which calls were the last ones; then it ends.
//
// course calls
#define _GNU_SOURCE
#include <sched.h>
#include <signal.h>
#include <stdlib.h>

#include "count.h"

#define LAST 1000
#define DEPTH 4

static char last[LAST];
static unsigned entered, stops_at;
static unsigned dice = 1;

// All of it is in one ring.
__attribute__((constructor(101))) static void stay_on_cpu_0(void)
{
    cpu_set_t set;
    CPU_ZERO(&set);
    CPU_SET(0, &set);
    sched_setaffinity(0, sizeof(set), &set);
}

static inline unsigned roll(unsigned sides)
{
    dice = dice * 1103515245 + 12345;
    return (dice >> 16) % sides;
}

NI static void stop(void)
{
    raise(SIGSTOP);
    for (unsigned i = 0; i < LAST; i++)
        putchar(last[(entered + i) % LAST]);
    putchar('\n');
    exit(0);
}

static void call(int depth);

#define STAGE(name, first, others)                                                                          \
    NI static void name(int depth)                                                                          \
    {                                                                                                       \
        last[entered++ % LAST] = first;                                                                     \
        if (entered == stops_at)                                                                            \
            stop();                                                                                         \
        for (unsigned i = roll(others); depth && i; i--)                                                    \
            call(depth - 1);                                                                                \
    }

STAGE(ash, 'a', 2)
STAGE(birch, 'b', 3)
STAGE(cedar, 'c', 3)
STAGE(elm, 'e', 4)

static void (*const stages[])(int) = { ash, birch, cedar, elm };

NI static void call(int depth)
{
    stages[roll(4)](depth);
}

int main(int argc, char **argv)
{
    stops_at = argc > 1 ? (unsigned)atoi(argv[1]) : LAST;
    for (;;)
        call(DEPTH);
}
