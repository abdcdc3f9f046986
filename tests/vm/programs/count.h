// Functions that count their own calls, and print what a report must say of them: `count NAME entered returned`.
#ifndef COUNT_H
#define COUNT_H

#include <stdio.h>

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

#endif
