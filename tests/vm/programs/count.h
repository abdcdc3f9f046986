// Functions that count their own calls, and print what a report must say of them: `count NAME entered returned`.
#ifndef COUNT_H
#define COUNT_H

#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

#define NI __attribute__((noipa))

struct count {
    const char *name;
    unsigned long entered, returned;
};

// Of all threads, and without a branch.
#define ENTER(function) __atomic_fetch_add(&count_##function.entered, 1, __ATOMIC_RELAXED)
#define LEAVE(function) __atomic_fetch_add(&count_##function.returned, 1, __ATOMIC_RELAXED)
#define COUNTED(function) static struct count count_##function = { #function, 0, 0 }
#define PRINT(function)                                                                                     \
    printf("count %s %lu %lu\n", count_##function.name, count_##function.entered, count_##function.returned)

static volatile sig_atomic_t may_begin;

static void on_usr1(int signal)
{
    (void)signal;
    may_begin = 1;
}

// With WAIT in the environment: naps until SIGUSR1 says that it is traced, so that all of its work is.
__attribute__((constructor)) static void wait_until_traced(void)
{
    struct timespec nap = { 0, 1000000 };
    if (!getenv("WAIT"))
        return;
    signal(SIGUSR1, on_usr1);
    while (!may_begin)
        nanosleep(&nap, NULL);
    unsetenv("WAIT"); // what it executes must not wait
}

#endif
