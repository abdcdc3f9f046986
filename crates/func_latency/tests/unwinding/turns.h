/*
 * Calls that count themselves, in two turns.  Prints "ready", calls once a ms until a line comes; then the time (CLOCK_MONOTONIC) from
 * which on calls count, then the counted calls, and what they counted.
 */
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

#define PROBED __attribute__((noinline, noclone))

static long called;

static void take_turns(void (*call)(long), long calls)
{
	struct pollfd line = { 0, POLLIN, 0 };
	struct timespec now;
	long n = 0;

	puts("ready");
	fflush(stdout);
	while (poll(&line, 1, 1) == 0)
		call(n++);
	if (getchar() == EOF)
		exit(1);
	called = 0;
	clock_gettime(CLOCK_MONOTONIC, &now);
	for (n = 0; n < calls; n++)
		call(n);
	printf("from %ld called %ld ", now.tv_sec * 1000000000L + now.tv_nsec, called);
}
