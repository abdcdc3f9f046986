// How long it takes to create a thread and to wait for its end: the least time of some, in ns.
#include <pthread.h>
#include <stdio.h>
#include <time.h>

static void *end(void *unused)
{
    return unused;
}

static long now(void)
{
    struct timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    return time.tv_sec * 1000000000 + time.tv_nsec;
}

int main(void)
{
    long least = 0;
    for (int i = 0; i < 200; i++) {
        pthread_t thread;
        long before = now();
        if (pthread_create(&thread, NULL, end, NULL))
            return 1;
        pthread_join(thread, NULL);
        long took = now() - before;
        if (!least || took < least)
            least = took;
    }
    printf("%ld\n", least);
    return 0;
}
