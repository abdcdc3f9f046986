// C, in which nothing handles exceptions.  `cases CASE`; what is imported depends on what it is compiled with.
#include <pthread.h>
#include <signal.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>
#include "turns.h"

PROBED long work(long n)
{
	called++;
	asm volatile("");
	return n & 1 ? n * 3 : n / 2;
}

static void directly(long n)
{
	work(n);
}

static int compare(const void *one, const void *other)
{
	work(*(const int *)one);
	return *(const int *)one - *(const int *)other;
}

// Two elements are compared once.
static void by_the_c_library(long n)
{
	int pair[2] = { n, n + 1 };

	qsort(pair, 2, sizeof(pair[0]), compare);
}

static void handler(int number)
{
	work(number);
}

static void in_a_handler(long n)
{
	(void)n;
	raise(SIGUSR1);
}

static void *in_a_thread(void *calls)
{
	take_turns(directly, (long)calls);
	return NULL;
}

// Deeper than the kernel follows.
PROBED long nested(long depth)
{
	called++;
	long below = depth > 0 ? nested(depth - 1) : 0;
	asm volatile("" : "+r"(below));
	return below + 1;
}

// Both processes return from it, one to an end of its own.
PROBED int forks(void)
{
	called++;
	pid_t child = fork();
	asm volatile("" : "+r"(child));
	return child;
}

static void in_two_processes(long n)
{
	int status = 0;
	pid_t child = forks();

	if (child == 0)
		_exit(n % 100);
	if (waitpid(child, &status, 0) != child || !WIFEXITED(status) || WEXITSTATUS(status) != n % 100)
		abort();
	if (system("true") != 0)
		abort();
}

static void deeply(long n)
{
	(void)n;
	nested(79);
}

#ifdef CATCHES
long throws_and_catches(long n);

PROBED long calls_what_catches(long n)
{
	called++;
	long value = throws_and_catches(n);
	asm volatile("" : "+r"(value));
	return value;
}

static void above_what_catches(long n)
{
	calls_what_catches(n);
}

// A jump out of a function whose return address is rewritten, into one whose `ret` is probed.
PROBED long jumps_to_what_catches(long n)
{
	called++;
	asm volatile("");
	return throws_and_catches(n);
}

static void by_a_jump(long n)
{
	jumps_to_what_catches(n);
}
#endif

#ifdef SWITCHES
#include <ucontext.h>

static ucontext_t here, there;
static char stack[1 << 16];

static void on_another_stack(void)
{
	for (;;) {
		work(1);
		swapcontext(&there, &here);
	}
}

static void switched(long n)
{
	(void)n;
	swapcontext(&here, &there);
}
#endif

#ifdef ENDS
PROBED long ends_its_thread(long n)
{
	called++;
	if (n >= 0)
		pthread_exit(NULL);
	return n;
}

static void *ending(void *n)
{
	ends_its_thread((long)n);
	return NULL;
}

static void in_a_thread_that_ends(long n)
{
	pthread_t thread;

	pthread_create(&thread, NULL, ending, (void *)n);
	pthread_join(thread, NULL);
}
#endif

int main(int argc, char **argv)
{
	const char *what = argc > 1 ? argv[1] : "";
	pthread_t thread;

	if (strcmp(what, "directly") == 0) {
		take_turns(directly, 1000);
	} else if (strcmp(what, "sorts") == 0) {
		take_turns(by_the_c_library, 1000);
	} else if (strcmp(what, "handler") == 0) {
		signal(SIGUSR1, handler);
		take_turns(in_a_handler, 1000);
	} else if (strcmp(what, "thread") == 0) {
		pthread_create(&thread, NULL, in_a_thread, (void *)1000);
		pthread_join(thread, NULL);
	} else if (strcmp(what, "forks") == 0) {
		take_turns(in_two_processes, 100);
	} else if (strcmp(what, "nested") == 0) {
		take_turns(deeply, 10);
#ifdef CATCHES
	} else if (strcmp(what, "catches") == 0) {
		take_turns(above_what_catches, 1000);
	} else if (strcmp(what, "jumps") == 0) {
		take_turns(by_a_jump, 1000);
#endif
#ifdef SWITCHES
	} else if (strcmp(what, "switches") == 0) {
		getcontext(&there);
		there.uc_stack.ss_sp = stack;
		there.uc_stack.ss_size = sizeof(stack);
		makecontext(&there, on_another_stack, 0);
		take_turns(switched, 1000);
#endif
#ifdef ENDS
	} else if (strcmp(what, "ends") == 0) {
		take_turns(in_a_thread_that_ends, 100);
#endif
	} else {
		return 2;
	}
	puts("done");
	return 0;
}
