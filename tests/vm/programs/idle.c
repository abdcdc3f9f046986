// Threads that sleep for ever beside one that never does.
//
// idle [sleeping threads]
#include <pthread.h>
#include <stdlib.h>
#include <unistd.h>

static volatile unsigned long sink;

static void *sleep_on(void *unused)
{
    for (;;)
        pause();
    return unused;
}

int main(int argc, char **argv)
{
    int threads = argc > 1 ? atoi(argv[1]) : 0;
    pthread_t thread;
    for (int i = 0; i < threads; i++)
        if (pthread_create(&thread, NULL, sleep_on, NULL))
            return 1;
    for (;;)
        sink++;
}
