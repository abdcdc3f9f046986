// Threads that are born one after the other while it is recorded, live for a while, and die.
//
// births [threads]
#include <pthread.h>
#include <stdlib.h>
#include <time.h>

#include "count.h"

COUNTED(leaf);
COUNTED(stage);
static volatile long sink;

NI void leaf(int x)
{
    ENTER(leaf);
    sink += x;
    LEAVE(leaf);
}

NI void stage(int x)
{
    struct timespec nap = { 0, 1000000 };
    ENTER(stage);
    leaf(x);
    nanosleep(&nap, NULL);
    leaf(x + 1);
    LEAVE(stage);
}

static void *live(void *unused)
{
    for (int i = 0; i < 20; i++)
        stage(i);
    return unused;
}

int main(int argc, char **argv)
{
    int threads = argc > 1 ? atoi(argv[1]) : 6;
    for (int i = 0; i < threads; i++) {
        pthread_t thread;
        if (pthread_create(&thread, NULL, live, NULL))
            return 1;
        stage(i);
        pthread_join(thread, NULL);
    }
    PRINT(leaf);
    PRINT(stage);
    return 0;
}
