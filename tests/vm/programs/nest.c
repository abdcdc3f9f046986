// Nested calls, direct and indirect, conditional branches and system calls.
//
// nest [rounds]
#include <stdlib.h>
#include <unistd.h>

#include "count.h"

COUNTED(leaf);
COUNTED(mid);
COUNTED(outer);
static volatile int sink;

NI int leaf(int x)
{
    ENTER(leaf);
    if (x & 1)
        sink += x;
    else
        sink -= x;
    LEAVE(leaf);
    return x + 1;
}

NI int mid(int x)
{
    int sum = 0;
    ENTER(mid);
    for (int i = 0; i < 3; i++)
        sum += leaf(x + i);
    LEAVE(mid);
    return sum;
}

NI int outer(int x)
{
    ENTER(outer);
    int sum = mid(x) + mid(x + 7);
    LEAVE(outer);
    return sum;
}

static int (*volatile indirect)(int) = outer;

int main(int argc, char **argv)
{
    int rounds = argc > 1 ? atoi(argv[1]) : 10;
    long sum = 0;
    for (int i = 0; i < rounds; i++) {
        sum += indirect(i);
        if (i % 4 == 0)
            getppid();
    }
    PRINT(leaf);
    PRINT(mid);
    PRINT(outer);
    return sum == 0;
}
