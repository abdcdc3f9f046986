// A library of C++ that never stands above what calls it: its exceptions stay inside.
#define PROBED extern "C" __attribute__((noinline, noclone))

static __attribute__((noinline)) long throws(long n)
{
	asm volatile("");
	if (n % 3 == 0)
		throw n;
	return n;
}

PROBED long throws_and_catches(long n)
{
	try {
		return throws(n);
	} catch (long thrown) {
		return -thrown;
	}
}
