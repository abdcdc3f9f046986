// Requests, each with twenty calls and a sleep.  Ends, and prints its counts, behind the last one, or at SIGTERM.
//
// server [requests]
#include <limits.h>
#include <signal.h>
#include <stdlib.h>
#include <time.h>

#include "count.h"

COUNTED(hot);
COUNTED(handle);
static volatile long sink;
static volatile sig_atomic_t ends;

NI void hot(int x)
{
    ENTER(hot);
    sink += x;
    LEAVE(hot);
}

NI void handle(int x)
{
    ENTER(handle);
    for (int i = 0; i < 20; i++)
        hot(x + i);
    struct timespec pause = { 0, 2000000 };
    nanosleep(&pause, NULL);
    LEAVE(handle);
}

static void on_term(int signal)
{
    (void)signal;
    ends = 1;
}

int main(int argc, char **argv)
{
    int requests = argc > 1 ? atoi(argv[1]) : INT_MAX;
    signal(SIGTERM, on_term);
    for (int i = 0; i < requests && !ends; i++)
        handle(i);
    PRINT(hot);
    PRINT(handle);
    return 0;
}
