// Threads that take turns at a lock and sleep in it, a timer's signals, longjmp, recursion, a child process.
//
// threads [threads [rounds]]
#include <pthread.h>
#include <setjmp.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/time.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "count.h"

#define MAX_THREADS 1000

COUNTED(inner);
COUNTED(work);
COUNTED(locked);
COUNTED(jumper);
COUNTED(fibonacci);
static volatile long sink;
static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
static jmp_buf outside;
static int rounds = 5;

NI void inner(int x)
{
    ENTER(inner);
    sink += x * 3;
    LEAVE(inner);
}

NI void work(int x)
{
    ENTER(work);
    for (int i = 0; i < 5; i++)
        inner(i + x);
    if (x % 3 == 0) {
        struct timespec ms = { 0, 1000000 };
        nanosleep(&ms, NULL);
    }
    LEAVE(work);
}

NI void locked(int x)
{
    ENTER(locked);
    pthread_mutex_lock(&mutex);
    work(x);
    pthread_mutex_unlock(&mutex);
    LEAVE(locked);
}

NI void jumper(int depth)
{
    ENTER(jumper);
    if (!depth)
        longjmp(outside, 1);
    jumper(depth - 1);
    LEAVE(jumper);
}

NI int fibonacci(int n)
{
    ENTER(fibonacci);
    int value = n < 2 ? n : fibonacci(n - 1) + fibonacci(n - 2);
    LEAVE(fibonacci);
    return value;
}

static void on_alarm(int signal)
{
    (void)signal;
    inner(7);
}

static void *run(void *unused)
{
    for (int i = 0; i < rounds; i++)
        locked(i);
    return unused;
}

int main(int argc, char **argv)
{
    static pthread_t threads[MAX_THREADS];
    int count = argc > 1 ? atoi(argv[1]) : 3;
    if (argc > 2)
        rounds = atoi(argv[2]);
    if (count > MAX_THREADS)
        return 2;
    struct sigaction action = { .sa_handler = on_alarm, .sa_flags = SA_RESTART };
    sigaction(SIGALRM, &action, NULL);
    struct itimerval every = { { 0, 3000 }, { 0, 3000 } };
    setitimer(ITIMER_REAL, &every, NULL);
    for (int i = 0; i < count; i++)
        if (pthread_create(&threads[i], NULL, run, NULL))
            return 1;
    for (int i = 0; i < count; i++)
        pthread_join(threads[i], NULL);
    if (!setjmp(outside))
        jumper(10);
    memset(&every, 0, sizeof(every));
    setitimer(ITIMER_REAL, &every, NULL);
    fibonacci(8);
    raise(SIGALRM);
    if (!fork()) // what it does is another process's
        _exit(sink == 0);
    wait(NULL);
    PRINT(inner);
    PRINT(work);
    PRINT(locked);
    PRINT(jumper);
    PRINT(fibonacci);
    return 0;
}
