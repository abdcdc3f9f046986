// A child and its child, which are there before it is recorded, and call when it is.  The counts are of all processes.
//
// brood [calls of each]
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include "count.h"

static struct count *shared; // with the children
#define count_chore (*shared)
static volatile long sink;
static int started[2]; // a pipe: a byte for each child that may begin
static int child;

NI void chore(int x)
{
    ENTER(chore);
    sink += x;
    LEAVE(chore);
}

static void work(int calls)
{
    for (int i = 0; i < calls; i++)
        chore(i);
}

static int calls_of(int argc, char **argv)
{
    return argc > 1 ? atoi(argv[1]) : 50;
}

// Before the first process waits until it is traced.
__attribute__((constructor(101))) static void have_children(int argc, char **argv)
{
    char byte;
    shared = mmap(NULL, sizeof(*shared), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (shared == MAP_FAILED || pipe(started))
        _exit(1);
    shared->name = "chore";
    child = fork();
    if (child)
        return;
    int grandchild = fork();
    if (read(started[0], &byte, 1) != 1)
        _exit(1);
    work(calls_of(argc, argv));
    if (grandchild)
        waitpid(grandchild, NULL, 0);
    _exit(0);
}

int main(int argc, char **argv)
{
    work(calls_of(argc, argv));
    if (write(started[1], "go", 2) != 2)
        return 1;
    waitpid(child, NULL, 0);
    PRINT(chore);
    return 0;
}
