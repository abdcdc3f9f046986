// Calls of which some are slow for a known reason.  Prints "ready", waits for a line, calls `work` CALLS times, and prints how many
// calls there were, how many slept, how many waited for another thread, and how many took longer than OVER_MS by its own clock, for
// whatever reason: a machine that is busy preempts some.
#define _GNU_SOURCE
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

#define PROBED __attribute__((noinline, noclone))

enum { SLEEPS_EACH = 300, WAITS_EACH = 500, SLOW_MS = 20, OVER_MS = 15 };

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t asked = PTHREAD_COND_INITIALIZER, given = PTHREAD_COND_INITIALIZER;
static int is_asked, is_given, is_over;
static volatile unsigned long sink;

static void sleep_ms(long ms)
{
	struct timespec time = { 0, ms * 1000000 };
	nanosleep(&time, 0);
}

PROBED void doze(void)
{
	sleep_ms(SLOW_MS);
	sink++;
}

PROBED void receive(void)
{
	pthread_mutex_lock(&lock);
	is_asked = 1;
	pthread_cond_signal(&asked);
	while (!is_given)
		pthread_cond_wait(&given, &lock);
	is_given = 0;
	pthread_mutex_unlock(&lock);
	sink++;
}

PROBED void spin(void)
{
	for (int i = 0; i < 20000; i++)
		sink += i;
}

PROBED void work(long number)
{
	spin();
	if (number % SLEEPS_EACH == SLEEPS_EACH - 1)
		doze();
	if (number % WAITS_EACH == WAITS_EACH - 1)
		receive();
	sink++;
}

static long now_ns(void)
{
	struct timespec time;
	clock_gettime(CLOCK_MONOTONIC, &time);
	return time.tv_sec * 1000000000 + time.tv_nsec;
}

static void *give(void *unused)
{
	pthread_setname_np(pthread_self(), "giver");
	pthread_mutex_lock(&lock);
	while (!is_over) {
		if (!is_asked) {
			pthread_cond_wait(&asked, &lock);
			continue;
		}
		is_asked = 0;
		pthread_mutex_unlock(&lock);
		sleep_ms(SLOW_MS);
		pthread_mutex_lock(&lock);
		is_given = 1;
		pthread_cond_signal(&given);
	}
	pthread_mutex_unlock(&lock);
	return unused;
}

int main(int count, char **words)
{
	long calls = count > 1 ? atol(words[1]) : 3000, slow = 0;
	pthread_t giver;
	char line[16];

	pthread_create(&giver, 0, give, 0);
	puts("ready");
	fflush(stdout);
	if (!fgets(line, sizeof(line), stdin))
		return 1;
	for (long number = 0; number < calls; number++) {
		long start = now_ns();
		work(number);
		slow += now_ns() - start > OVER_MS * 1000000l;
	}
	pthread_mutex_lock(&lock);
	is_over = 1;
	pthread_cond_signal(&asked);
	pthread_mutex_unlock(&lock);
	pthread_join(giver, 0);
	printf("%ld %ld %ld %ld\n", calls, calls / SLEEPS_EACH, calls / WAITS_EACH, slow);
	return 0;
}
