/* A library of C, through whose frames exceptions pass that others throw. */
long passes(long (*call)(long), long n);

__attribute__((noinline, noclone)) long passes(long (*call)(long), long n)
{
	long value = call(n);

	asm volatile("" : "+r"(value));
	return value + 1;
}
