// `repeated N`: 300 calls of `work`, each of N rounds.
#include <stdio.h>
#include <stdlib.h>

__attribute__((noinline)) static long work(long rounds) {
	volatile long sum = 0;
	for (long round = 0; round < rounds; round++)
		sum += round;
	return sum;
}

int main(int count, char **words) {
	long rounds = count > 1 ? atol(words[1]) : 1;
	for (int call = 0; call < 300; call++)
		work(rounds);
	puts("this must not be in the figures");
	return 0;
}
