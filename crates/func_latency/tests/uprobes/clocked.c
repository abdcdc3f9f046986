// Calls that the program times itself.  `clocked NS CHILDREN KB`: calls `measured` of NS ns, which calls `piece` CHILDREN times,
// with a walk over KB of memory before each call.  Prints what its own clock says before there are probes ("own", then in ns the
// median, the mean, and the least and largest mean of PARTS parts), then "ready", calls on until its input ends, and prints that
// once more.  As C++, one of 64 calls ends by an exception.
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

#ifdef __cplusplus
#define C_NAME extern "C"
#else
#define C_NAME
#endif
#define PROBED C_NAME __attribute__((noinline, noclone))

enum { PARTS = 20, PART_NS = 20000000, CALLS_MAX = 4000000, LINE = 64 };

static volatile int is_over;
static char *memory;
static long kilobytes;

static double now(void)
{
	struct timespec time;
	clock_gettime(CLOCK_MONOTONIC, &time);
	return time.tv_sec * 1e9 + time.tv_nsec;
}

// Each step needs the one before it.
static inline __attribute__((always_inline)) unsigned long spin(unsigned long rounds, unsigned long value)
{
	for (; rounds; rounds--) {
		value = value * 0x5851f42d4c957f2dUL + 1;
		__asm__ volatile("" : "+r"(value));
	}
	return value;
}

PROBED unsigned long piece(unsigned long rounds, unsigned long value)
{
	return spin(rounds, value);
}

PROBED unsigned long measured(unsigned long rounds, long children, unsigned long number)
{
	unsigned long value = spin(rounds, number);
	for (long child = 0; child < children; child++)
		value = piece(rounds, value);
#ifdef __cplusplus
	if (number % 64 == 63)
		throw value;
#endif
	return value;
}

static void walk(void)
{
	for (long at = 0; at < kilobytes << 10; at += LINE)
		memory[at]++;
}

// Returns how long the call took, or a negative number if it was left by an exception.
static double one(unsigned long rounds, long children, unsigned long number)
{
	double from = now();
#ifdef __cplusplus
	try {
#endif
		measured(rounds, children, number);
#ifdef __cplusplus
	} catch (unsigned long) {
		return -1;
	}
#endif
	return now() - from;
}

static int ascending(const void *a, const void *b)
{
	double x = *(const double *)a, y = *(const double *)b;
	return (x > y) - (x < y);
}

static double median(double *times, long count)
{
	qsort(times, count, sizeof(*times), ascending);
	return times[count / 2];
}

// What reading the clock takes.
static double reading(double *times)
{
	const long count = 10000;

	for (long i = 0; i < count; i++) {
		double from = now();
		times[i] = now() - from;
	}
	return median(times, count);
}

static void own(unsigned long rounds, long children)
{
	double *times = (double *)malloc(CALLS_MAX * sizeof(*times));
	double clock = reading(times), least = 1e18, largest = 0, all = 0;
	unsigned long number = 0;
	long count = 0;

	for (long part = 0; part < PARTS; part++) {
		double begun = now(), sum = 0;
		long from = count;

		while (now() - begun < PART_NS && count < CALLS_MAX) {
			walk();
			double time = one(rounds, children, number++) - clock;
			if (time < 0)
				continue;
			times[count++] = time;
			sum += time;
		}
		double mean = sum / (count - from);
		all += sum;
		least = mean < least ? mean : least;
		largest = mean > largest ? mean : largest;
	}
	printf("own %.0f %.0f %.0f %.0f\n", median(times, count), all / count, least, largest);
	fflush(stdout);
	free(times);
}

static void *wait_for_end(void *unused)
{
	while (getchar() != EOF)
		;
	is_over = 1;
	return unused;
}

int main(int argc, char **argv)
{
	if (argc != 4)
		return 2;
	double ns = atof(argv[1]);
	long children = atol(argv[2]);
	kilobytes = atol(argv[3]);
	memory = (char *)calloc(kilobytes + 1, 1 << 10);

	double fastest = 1e18;
	for (int round = 0; round < 20; round++) {
		double from = now();
		spin(100000, round);
		double took = now() - from;
		fastest = took < fastest ? took : fastest;
	}
	unsigned long rounds = ns / (fastest / 100000) / (children + 1);
	own(rounds, children);
	puts("ready");
	fflush(stdout);
	pthread_t waits;
	pthread_create(&waits, NULL, wait_for_end, NULL);
	for (unsigned long number = 0; !is_over; number++) {
		walk();
		one(rounds, children, number);
	}
	pthread_join(waits, NULL);
	own(rounds, children);
	return 0;
}
