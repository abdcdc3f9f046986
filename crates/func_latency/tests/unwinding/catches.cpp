// Catches what was thrown through a library of C, and through its own function.
#include "turns.h"

extern "C" long passes(long (*call)(long), long n);

static long caught;

static long throws(long n)
{
	called++;
	if (n % 3 == 0)
		throw n;
	return n;
}

static void through_c(long n)
{
	try {
		passes(throws, n);
	} catch (long) {
		caught++;
	}
}

int main()
{
	take_turns(through_c, 300);
	printf("caught %ld done\n", caught);
	return 0;
}
