// Functions at the edges of the text segment, whose first and last file page other segments have, too
// (edges.ld).
//
// edges [rounds]
#include <stdlib.h>

#include "count.h"

COUNTED(first);
COUNTED(middle);
COUNTED(last);
static volatile long sink;

__attribute__((section(".first"))) NI void first(int x)
{
    ENTER(first);
    sink += x;
    LEAVE(first);
}

__attribute__((section(".middle"))) NI void middle(int x)
{
    ENTER(middle);
    for (int i = 0; i < 3; i++)
        sink += x ^ i;
    LEAVE(middle);
}

__attribute__((section(".last"))) NI void last(int x)
{
    ENTER(last);
    sink -= x;
    LEAVE(last);
}

int main(int argc, char **argv)
{
    int rounds = argc > 1 ? atoi(argv[1]) : 100;
    for (int i = 0; i < rounds; i++) {
        first(i);
        middle(i);
        last(i);
    }
    PRINT(first);
    PRINT(middle);
    PRINT(last);
    return 0;
}
