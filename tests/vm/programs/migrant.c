// Calls in a thread that moves from one CPU to the other and back, also in the middle of a call.
//
// migrant [rounds]
#define _GNU_SOURCE
#include <sched.h>
#include <stdlib.h>

#include "count.h"

COUNTED(step);
COUNTED(journey);
static volatile long sink;

static void move_to(int cpu)
{
    cpu_set_t set;
    CPU_ZERO(&set);
    CPU_SET(cpu, &set);
    sched_setaffinity(0, sizeof(set), &set);
}

NI void step(int x)
{
    ENTER(step);
    sink += x;
    LEAVE(step);
}

NI void journey(int x)
{
    ENTER(journey);
    step(x);
    move_to(x & 1);
    step(x);
    LEAVE(journey);
}

int main(int argc, char **argv)
{
    int rounds = argc > 1 ? atoi(argv[1]) : 20;
    for (int i = 0; i < rounds; i++)
        journey(i);
    PRINT(step);
    PRINT(journey);
    return 0;
}
