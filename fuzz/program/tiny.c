/*
 * A program without libraries that takes every kind of branch: its code is small enough to lie in the
 * repository beside the traces of it that fuzzing starts from.
 *
 * Usage: tiny, with as many arguments as rounds.
 */

#define NOINLINE __attribute__((noinline, noclone))
#define SYS_RT_SIGACTION 13
#define SYS_GETPID 39
#define SYS_EXIT 60
#define SYS_KILL 62
#define SIGUSR1 10
#define SA_RESTORER 0x04000000

static volatile long sink;

static long system_call(long number, long a, long b, long c, long d)
{
    register long r10 __asm__("r10") = d;
    long result;
    __asm__ volatile("syscall"
                     : "=a"(result)
                     : "a"(number), "D"(a), "S"(b), "d"(c), "r"(r10)
                     : "rcx", "r11", "memory");
    return result;
}

NOINLINE static long leaf(long x)
{
    return x * 3 + sink;
}

NOINLINE static long fib(long n)
{
    return n < 2 ? n : fib(n - 1) + fib(n - 2);
}

/* A switch that compiles to a jump table. */
NOINLINE static long choose(long x)
{
    switch (x & 7) {
    case 0: return leaf(x);
    case 1: sink += 5; return 17;
    case 2: sink ^= x; return fib(3);
    case 3: return x << 3;
    case 4: sink -= x; return sink;
    case 5: return leaf(x) + leaf(x + 1);
    case 6: sink = 7; return x / 3;
    default: return -x;
    }
}

/* Called through pointers. */
NOINLINE static long add_one(long x) { return x + 1; }
NOINLINE static long twice(long x) { return x * 2; }
static long (*volatile operations[])(long) = {add_one, twice, choose};

NOINLINE static long apply(long i, long x)
{
    return operations[i % 3](x) + i;
}

#ifdef LIBRARY
/* As a library it calls through the PLT, and has a function that is chosen when it is loaded. */
extern long imported(long x);

static void *choose_chosen(void)
{
    return (void *)twice;
}

long chosen(long x) __attribute__((ifunc("choose_chosen")));

long exported(long x)
{
    return imported(chosen(x)) + 1;
}
#endif

/* Jumps to its target instead of calling it. */
NOINLINE static long tail(long i, long x)
{
    sink += i;
    return operations[i % 3](x);
}

/* The unlikely part becomes a function of its own, `guarded.cold`. */
__attribute__((cold)) NOINLINE static void report(long x)
{
    sink += x;
}

NOINLINE static long guarded(long x)
{
    if (__builtin_expect(x % 13 == 12, 0)) {
        report(x);
        sink += leaf(x);
        report(sink);
    }
    return x + 2;
}

static void on_usr1(int signal)
{
    sink += leaf(signal);
}

__asm__(".text\nrestore:\n\tmov $15, %eax\n\tsyscall\n");
extern void restore(void);

struct action {
    void (*handler)(int);
    unsigned long flags;
    void (*restorer)(void);
    unsigned long mask;
};

NOINLINE static void round_of(long i)
{
    for (long j = 0; j < 20; j++) {
        sink += choose(i + j);
        sink += apply(j, i);
        sink += tail(j, i);
        sink += guarded(i * 20 + j);
    }
    sink += fib(5);
    system_call(SYS_KILL, system_call(SYS_GETPID, 0, 0, 0, 0), SIGUSR1, 0, 0);
}

NOINLINE static void start(long rounds)
{
    struct action action = {on_usr1, SA_RESTORER, restore, 0};
    system_call(SYS_RT_SIGACTION, SIGUSR1, (long)&action, 0, 8);
    for (long i = 1; i < rounds; i++)
        round_of(i);
    system_call(SYS_EXIT, 0, 0, 0, 0);
}

/* The number of arguments is on top of the stack. */
__attribute__((naked, noreturn, used)) void _start(void)
{
    __asm__("mov (%%rsp), %%rdi\n\tand $-16, %%rsp\n\tcall %P0\n\thlt" : : "i"(start));
}
