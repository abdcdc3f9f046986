// Calls that count themselves.  `truth CASE`: prints "ready", waits for a line, does CASE, prints what it counted, and ends.
#include <atomic>
#include <cerrno>
#include <csetjmp>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <fcntl.h>
#include <linux/futex.h>
#include <sched.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <thread>
#include <time.h>
#include <unistd.h>
#include <vector>

#define PROBED extern "C" __attribute__((noinline, noclone))
// The kernel places no probe at an instruction with `lock`, which would be the first one of some of these.
#define COUNT() do { asm volatile("nop"); called++; } while (0)

static std::atomic<long> called;

static void busy(long ns)
{
	timespec from, now;
	clock_gettime(CLOCK_MONOTONIC, &from);
	do
		clock_gettime(CLOCK_MONOTONIC, &now);
	while ((now.tv_sec - from.tv_sec) * 1000000000L + now.tv_nsec - from.tv_nsec < ns);
}

static void sleep_ms(long ms)
{
	timespec time = { ms / 1000, ms % 1000 * 1000000 };
	while (nanosleep(&time, &time) != 0 && errno == EINTR)
		;
}

PROBED long work(long n)
{
	COUNT();
	asm volatile("");
	return n & 1 ? n * 3 : n / 2;
}

// Has a symbol, and all of its callers have its code instead of a call.
extern "C" long inlined_everywhere(long n)
{
	long value = n * 7 + 1;
	asm volatile("" : "+r"(value));
	return value;
}

static void plain()
{
	long sum = 0;
	for (long n = 0; n < 1000; n++)
		sum += work(inlined_everywhere(n));
	for (long n = 0; n < 500; n++)
		sum += work(n + sum % 2);
	printf("called %ld\n", called.load());
}

// 2^7 - 1 activations, at most 7 at a time.
PROBED long recursive(long depth)
{
	COUNT();
	if (depth <= 1)
		return 1;
	long first = recursive(depth - 1);
	long second = recursive(depth - 1);
	asm volatile("" : "+r"(second)); // no loop instead of the second call
	return first + second;
}

// Deeper than is followed.
PROBED long deep(long depth)
{
	COUNT();
	long below = depth <= 1 ? 0 : deep(depth - 1);
	asm volatile("" : "+r"(below));
	return below + 1;
}

// Entered by a jump, with the return address of who called `jumper`.
PROBED long landed(long n)
{
	COUNT();
	return work(n) + 1;
}

PROBED long jumper(long n)
{
	COUNT();
	asm volatile("");
	return landed(n + 1);
}

// A condition decides whether it leaves by a jump or returns: `jne work`, which compilers make of sibling calls.
asm(".globl leaves_by_condition\n.type leaves_by_condition, @function\n"
    "leaves_by_condition:\n\tnop\n\tlock incq called_by_condition(%rip)\n\ttest $1, %edi\n\tjne work\n\tmov $7, %eax\n\tret\n"
    ".size leaves_by_condition, .-leaves_by_condition\n");
extern "C" long leaves_by_condition(long);
extern "C" {
long called_by_condition;
}

// A loop to its own first instruction is no call: `n` times round.
asm(".globl loops_to_entry\n.type loops_to_entry, @function\n"
    "loops_to_entry:\n\tdec %edi\n\tjg loops_to_entry\n\tret\n"
    ".size loops_to_entry, .-loops_to_entry\n");
extern "C" void loops_to_entry(int n);

PROBED long throws(long n)
{
	COUNT();
	if (n % 3 == 0)
		throw n;
	return n;
}

PROBED long throws_from_below(long n)
{
	COUNT();
	long value = throws(n);
	asm volatile("" : "+r"(value));
	return value + 1;
}

// Calls `work` twice and `landed`, which calls `work` itself, by itself, and `getppid` by the linkage table.
PROBED long calls_others(long n)
{
	COUNT();
	long first = work(n);
	long second = work(first + getppid());
	long third = landed(second);
	asm volatile("" : "+r"(third)); // no tail call
	return first + third;
}

// One of fifty takes ten times as long as the others.
PROBED void varies(long n)
{
	COUNT();
	busy(n % 50 == 7 ? 500000 : 50000);
}

PROBED void calls_what_varies(long n)
{
	COUNT();
	varies(n);
	busy(20000);
}

static jmp_buf before;

PROBED long jumps_back(long n)
{
	COUNT();
	if (n % 4 == 0)
		longjmp(before, 1);
	return n;
}

static long hits;

static void handler(int)
{
	hits += work(1);
}

PROBED long interrupted(long n)
{
	COUNT();
	raise(SIGUSR1);
	return n + work(n);
}

static int word, file;

PROBED void waits(int what)
{
	COUNT();
	switch (what) {
	case 's': sleep_ms(20); break;
	case 'f': syscall(SYS_futex, &word, FUTEX_WAIT, 0, nullptr, nullptr, 0); break;
	case 'd':
		if (write(file, "data", 4) != 4 || fsync(file) != 0)
			abort();
		break;
	case 'c': busy(200000000); break;
	}
}

// Who walks a stack by frame pointers finds the caller of a function that has one.
#define FRAMED PROBED __attribute__((optimize("no-omit-frame-pointer", "no-optimize-sibling-calls")))

FRAMED long wakes_one()
{
	return syscall(SYS_futex, &word, FUTEX_WAKE, 1, nullptr, nullptr, 0);
}

FRAMED void hands_over()
{
	// Who is late does not wait yet.
	while (wakes_one() != 1)
		sleep_ms(1);
}

// What threads did, by the clock, and by the kernel's sums of what they ran and of how long they waited for a CPU.
static std::atomic<long> wall_ns, run_ns, delay_ns;

static void add_sums(int sign)
{
	timespec now;
	long run = 0, delay = 0;

	sched_yield(); // the sums are brought up to date
	FILE *sums = fopen("/proc/thread-self/schedstat", "r");
	if (!sums || fscanf(sums, "%ld %ld", &run, &delay) != 2)
		abort();
	fclose(sums);
	clock_gettime(CLOCK_MONOTONIC, &now);
	wall_ns += sign * (now.tv_sec * 1000000000L + now.tv_nsec);
	run_ns += sign * run;
	delay_ns += sign * delay;
}

static void waits_often(int what, int calls)
{
	add_sums(-1);
	for (int n = 0; n < calls; n++)
		waits(what);
	add_sums(1);
}

static void print_sums()
{
	printf("called %ld wall %ld run %ld delay %ld\n", called.load(), wall_ns.load(), run_ns.load(), delay_ns.load());
}

static void in_threads(int number, int calls, void (*what)(int))
{
	std::vector<std::thread> threads;
	for (int i = 0; i < number; i++)
		threads.emplace_back([=] {
			for (int n = 0; n < calls; n++)
				what(n);
		});
	for (auto &thread : threads)
		thread.join();
}

static long now_ns()
{
	timespec now;
	clock_gettime(CLOCK_MONOTONIC, &now);
	return now.tv_sec * 1000000000L + now.tv_nsec;
}

// A thousand calls a second beside a thread that is busy; then, from the time on that is printed, nothing but calls, for ever.
static void surge()
{
	std::thread([] {
		for (;;)
			asm volatile("");
	}).detach();
	for (long until = now_ns() + 1000000000L; now_ns() < until; sleep_ms(1))
		work(1);
	printf("surge %ld\n", now_ns());
	fflush(stdout);
	for (long n = 0;; n++)
		work(n);
}

// The same program, from its beginning.
PROBED void executes()
{
	execl("/proc/self/exe", "truth", "executed", nullptr);
	abort();
}

static void hundred()
{
	for (long n = 0; n < 100; n++)
		work(n);
	printf("called %ld\n", called.load());
	fflush(stdout);
}

int main(int argc, char **argv)
{
	const char *what = argc > 1 ? argv[1] : "";
	auto is = [&](const char *name) { return strcmp(what, name) == 0; };

	if (is("executed")) {
		hundred();
		return 0;
	}
	if (is("always"))
		std::thread([] {
			for (long n = 0;; n++)
				work(n);
		}).detach();
	if (is("naps"))
		for (int i = 0; i < 4; i++)
			std::thread([] {
				for (long n = 0;; n++) {
					work(n);
					usleep(300);
				}
			}).detach();
	puts("ready");
	fflush(stdout);
	if (getchar() == EOF)
		return 1;
	if (is("always") || is("naps")) {
		_exit(0);
	} else if (is("plain")) {
		plain();
	} else if (is("recursive")) {
		recursive(7);
		printf("called %ld\n", called.load());
	} else if (is("deep")) {
		deep(200);
		deep(3);
		printf("called %ld\n", called.load());
	} else if (is("tail")) {
		for (long n = 0; n < 300; n++)
			jumper(n);
		printf("called %ld\n", called.load());
	} else if (is("children")) {
		for (long n = 0; n < 100; n++)
			calls_others(n);
		printf("called %ld\n", called.load());
	} else if (is("varies")) {
		for (long n = 0; n < 500; n++)
			calls_what_varies(n);
	} else if (is("condition")) {
		for (long n = 0; n < 300; n++)
			leaves_by_condition(n);
		printf("called %ld work %ld\n", called_by_condition, called.load());
	} else if (is("loop")) {
		for (int n = 0; n < 100; n++)
			loops_to_entry(n % 10 + 1);
		printf("called 100\n");
	} else if (is("throw")) {
		long caught = 0;
		for (long n = 0; n < 300; n++) {
			try {
				throws_from_below(n);
			} catch (long) {
				caught++;
			}
		}
		printf("called %ld caught %ld\n", called.load(), caught);
	} else if (is("longjmp")) {
		volatile long n = 0;
		volatile long caught = 0;
		if (setjmp(before))
			caught++;
		while (n < 400)
			jumps_back(n++);
		printf("called %ld caught %ld\n", called.load(), caught);
	} else if (is("signal") || is("altstack")) {
		struct sigaction action = {};
		action.sa_handler = handler;
		if (is("altstack")) {
			stack_t stack = {};
			stack.ss_size = 1 << 16;
			stack.ss_sp = malloc(stack.ss_size);
			sigaltstack(&stack, nullptr);
			action.sa_flags = SA_ONSTACK;
		}
		sigaction(SIGUSR1, &action, nullptr);
		for (long n = 0; n < 200; n++)
			interrupted(n);
		printf("called %ld\n", called.load());
	} else if (is("threads")) {
		for (int round = 0; round < 10; round++)
			in_threads(4, 100, [](int n) { work(n); });
		printf("called %ld\n", called.load());
	} else if (is("churn")) {
		for (int round = 0; round < 4; round++)
			in_threads(500, 10, [](int n) { work(n); });
		printf("called %ld\n", called.load());
	} else if (is("surge")) {
		surge();
	} else if (is("executes")) {
		hundred();
		executes();
	} else if (is("ticks")) {
		in_threads(8, 1000000, [](int n) {
			work(n);
			sleep_ms(1);
		});
	} else if (is("flood")) {
		in_threads(4, 20000, [](int n) { work(n); });
		printf("called %ld\n", called.load());
	} else if (is("fork")) {
		for (long n = 0; n < 50; n++)
			work(n);
		pid_t child = fork();
		if (child == 0) {
			for (long n = 0; n < 1000; n++)
				work(n);
			_exit(0);
		}
		waitpid(child, nullptr, 0);
		for (long n = 0; n < 50; n++)
			work(n);
		printf("called %ld\n", called.load());
	} else if (is("sleep")) {
		waits_often('s', 20);
		print_sums();
	} else if (is("futex")) {
		std::thread waker([] {
			for (int n = 0; n < 20; n++) {
				sleep_ms(10);
				hands_over();
			}
		});
		waits_often('f', 20);
		waker.join();
		print_sums();
	} else if (is("fsync")) {
		file = open("/var/tmp", O_TMPFILE | O_RDWR, 0600);
		waits_often('d', 50);
		print_sums();
	} else if (is("spin")) {
		in_threads(2 * static_cast<int>(std::thread::hardware_concurrency()), 1, [](int) { waits_often('c', 3); });
		print_sums();
	} else {
		return 2;
	}
	return 0;
}
