// Children that call and die; the first of them executes this program anew.  The counts are of all processes.
//
// family [children]
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include "count.h"

static struct count *shared; // with the children
#define count_chore (*shared)
static volatile long sink;

NI void chore(int x)
{
    ENTER(chore);
    sink += x;
    LEAVE(chore);
}

int main(int argc, char **argv)
{
    int children = argc > 1 ? atoi(argv[1]) : 5;
    shared = mmap(NULL, sizeof(*shared), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (shared == MAP_FAILED)
        return 1;
    shared->name = "chore";
    for (int i = 0; i < children; i++) {
        chore(i);
        int child = fork();
        if (!child) {
            chore(i);
            if (i == 0)
                execl(argv[0], argv[0], "0", (char *)NULL);
            _exit(0);
        }
        waitpid(child, NULL, 0);
    }
    if (children)
        PRINT(chore);
    return 0;
}
