// `repeated ROUNDS [CALLS] [STATUS]`: calls of `work` [300], each of so many rounds, and an exit status [0].
#include <stdio.h>
#include <stdlib.h>

__attribute__((noipa)) static long work(long rounds) {
	volatile long sum = 0;
	for (long round = 0; round < rounds; round++)
		sum += round;
	return sum;
}

int main(int count, char **words) {
	long rounds = count > 1 ? atol(words[1]) : 1;
	long calls = count > 2 ? atol(words[2]) : 300;
	for (long call = 0; call < calls; call++)
		work(rounds);
	puts("this must not be in the figures");
	return count > 3 ? atoi(words[3]) : 0;
}
