// Requests for ever, each with twenty calls and a sleep; ends, and prints its counts, at SIGTERM.
#include <signal.h>
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

int main(void)
{
    signal(SIGTERM, on_term);
    for (int i = 0; !ends; i++)
        handle(i);
    PRINT(hot);
    PRINT(handle);
    return 0;
}
