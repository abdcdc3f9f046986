// Calls a function that does nothing as often as it can, and says for each byte of its input how often, and its time on the CPU.
#include <pthread.h>
#include <stdio.h>
#include <time.h>
#include <unistd.h>

static volatile unsigned long calls;

// `push`, which the kernel carries out, or with STEPPED another instruction.
__attribute__((noinline, noclone)) void measured(void)
{
#ifdef STEPPED
	__asm__ volatile("mov %%eax, %%eax" ::: "memory");
#else
	__asm__ volatile("" ::: "rbx");
#endif
}

static void *answer(void *unused)
{
	struct timespec time;

	while (getchar() != EOF) {
		clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &time);
		printf("%lu %ld\n", calls, time.tv_sec * 1000000000L + time.tv_nsec);
		fflush(stdout);
	}
	_exit(0);
	return unused;
}

int main(void)
{
	pthread_t answers;

	pthread_create(&answers, NULL, answer, NULL);
	for (;;) {
		measured();
		calls++;
	}
}
