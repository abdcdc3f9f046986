// Calls in a thread that moves from one CPU to the other and back, also in the middle of a call.
//
// migrant [rounds]
#define _GNU_SOURCE
#include <sched.h>
#include <stdlib.h>

#include "count.h"

COUNTED(stride);
COUNTED(journey);
static volatile long sink;

static void move_to(int cpu)
{
    cpu_set_t set;
    CPU_ZERO(&set);
    CPU_SET(cpu, &set);
    sched_setaffinity(0, sizeof(set), &set);
}

// It waits there, too: where only that one is traced, it is seen to.
__attribute__((constructor(101))) static void begin_on_cpu_0(void)
{
    move_to(0);
}

NI void stride(int x)
{
    ENTER(stride);
    sink += x;
    LEAVE(stride);
}

NI void journey(int x)
{
    ENTER(journey);
    stride(x);
    move_to(x & 1);
    stride(x);
    LEAVE(journey);
}

int main(int argc, char **argv)
{
    int rounds = argc > 1 ? atoi(argv[1]) : 20;
    for (int i = 0; i < rounds; i++)
        journey(i);
    PRINT(stride);
    PRINT(journey);
    return 0;
}
