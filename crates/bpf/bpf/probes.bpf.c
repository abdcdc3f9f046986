// SPDX-License-Identifier: Apache-2.0 OR MIT
/*
 * Pairs the entries of functions with their ends, in the kernel: one record for each call.
 *
 *   probe at an entry  -> a frame on the thread's stack of open calls
 *   probe at a return  -> the frame with the same stack pointer: a record
 *   sched_switch       -> how long the thread was off its CPU, asleep or waiting
 *
 * A frame is known by where its return address is.  The stack grows down: frames below a new stack pointer are gone, without a
 * word if an exception or longjmp unwound them.  Nothing is ever paired by order alone.
 */
#include "kernel.h"
#include <bpf/bpf_core_read.h>
#include <bpf/bpf_helpers.h>
#include <bpf/bpf_tracing.h>

#include "probes.h"
#include "scheduler.h"

char LICENSE[] SEC("license") = "Dual MIT/GPL";

struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, 1024); /* set when loaded */
	__type(key, __u32);
	__type(value, struct thread);
} threads SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_RINGBUF);
	__uint(max_entries, 1 << 20); /* set when loaded */
} calls SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, COUNTERS);
	__type(key, __u32);
	__type(value, __u64);
} counters SEC(".maps");

/* Hits by function, of the programs that only count. */
struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, 1); /* set when loaded */
	__type(key, __u32);
	__type(value, __u64);
} hits SEC(".maps");

/* Length of each function's first part, by function: what a jump by register must leave. */
struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, 1); /* set when loaded */
	__type(key, __u32);
	__type(value, __u64);
} lengths SEC(".maps");

static const struct thread no_thread;

static __always_inline void count(__u32 counter)
{
	__u64 *value = bpf_map_lookup_elem(&counters, &counter);

	if (value)
		(*value)++;
}

static __always_inline struct frame *frame_at(struct thread *thread, __u32 index)
{
	if (index >= MAX_DEPTH)
		return 0;
	/* The verifier must see the bound before the address, and the compiler would have it the other way round. */
	barrier_var(index);
	return &thread->frames[index];
}

static __always_inline struct frame *innermost(struct thread *thread)
{
	return frame_at(thread, thread->depth - 1);
}

static __noinline void fill(struct call *call, struct thread *thread, struct frame *frame)
{
	struct frame *parent = frame->is_child ? frame_at(thread, thread->depth - 2) : 0;

	call->start = frame->start;
	call->blocked = thread->blocked - frame->blocked;
	call->runnable = thread->runnable - frame->runnable;
	call->preempted = thread->preempted - frame->preempted;
	call->caller = frame->caller;
	call->entry = frame->entry;
	call->number = frame->number;
	call->parent = parent ? parent->number : 0;
	call->lost_from = thread->lost_from;
	call->lost_to = thread->lost_to;
	call->lost = thread->lost;
	call->function = frame->function;
	call->pid = thread->pid;
	call->cpu = frame->cpu;
	call->probes = thread->probes - frame->probes;
	call->depth = frame->depth;
	call->is_child = frame->is_child;
}

/*
 * The record of a call, or of a thread's end.  Calls that have no room are counted, and told with the thread's next record.
 *
 * Not static, as what follows: the verifier looks at such a function once, not at each place that calls it.
 */
__noinline int emit(struct thread *thread, struct frame *frame, __u32 tid, __u64 end, __u8 how)
{
	struct call *call;

	if (!thread || !frame)
		return 0;
	call = bpf_ringbuf_reserve(&calls, sizeof(*call), 0);
	if (!call) {
		if (how == END_OF_THREAD)
			return 1;
		if (!thread->lost || frame->start < thread->lost_from)
			thread->lost_from = frame->start;
		thread->lost_to = end;
		thread->lost++;
		return 0;
	}
	fill(call, thread, frame);
	call->end = end;
	call->tid = tid;
	call->how = how;
	/* User space looks by itself, every few ms: waking it costs more than all of this. */
	bpf_ringbuf_submit(call, BPF_RB_NO_WAKEUP);
	thread->lost = 0;
	return 0;
}

/* What a signal interrupted waits on its own stack; a handler that control has left is gone. */
static __always_inline bool is_dead(struct frame *frame, __u64 sp, bool on_signal_stack)
{
	return frame->on_signal_stack == on_signal_stack ? frame->sp < sp : !on_signal_stack;
}

/* Whether an outer frame of the same stack lives on. */
__noinline int goes_on(struct thread *thread, __u64 sp, bool on_signal_stack)
{
	if (!thread)
		return 0;
	for (__u32 i = 0; i < MAX_DEPTH; i++) {
		struct frame *frame = frame_at(thread, thread->depth - 1 - i);

		if (!frame)
			break;
		if (!is_dead(frame, sp, on_signal_stack))
			return frame->on_signal_stack == on_signal_stack;
	}
	return 0;
}

/* Ends the frames that are below `sp`, and so are gone; `is_reused`: others stand in their place. */
__noinline int drop_dead(struct thread *thread, __u32 tid, __u64 sp, bool on_signal_stack, bool is_reused)
{
	struct frame *dead;
	__u8 how;

	if (!thread)
		return 0;
	dead = innermost(thread);
	if (!dead || !is_dead(dead, sp, on_signal_stack))
		return 0;
	how = is_reused || goes_on(thread, sp, on_signal_stack) ? END_UNWOUND : END_UNSEEN;
	for (int i = 0; i < MAX_DEPTH; i++) {
		struct frame *frame = innermost(thread);

		if (!frame)
			break;
		if (!is_dead(frame, sp, on_signal_stack))
			break;
		/* Deeper than 64 the kernel rewrites no return address: such a call may have returned unseen. */
		emit(thread, frame, tid, thread->seen, frame->is_rewritten ? END_UNSEEN : how);
		thread->depth--;
	}
	return 0;
}

/* Activations of the function that are open. */
__noinline int depth_of(struct thread *thread, __u32 function)
{
	int depth = 0;

	if (!thread)
		return 0;
	for (__u32 i = 0; i < MAX_DEPTH; i++) {
		struct frame *frame = frame_at(thread, i);

		if (i >= thread->depth || !frame)
			break;
		depth += frame->function == function;
	}
	return depth;
}

/* kernel/signal.c, __on_sig_stack() */
static __always_inline bool is_on_signal_stack(struct task_struct *task, __u64 sp)
{
	__u64 start = BPF_CORE_READ(task, sas_ss_sp);

	return sp > start && sp - start <= BPF_CORE_READ(task, sas_ss_size);
}

/* SDM volume 1, appendix B: a condition is three bits of which flags, and one that negates. */
static __always_inline bool holds(__u8 condition, __u64 flags)
{
	bool carry = flags & 1, parity = flags >> 2 & 1, zero = flags >> 6 & 1, sign = flags >> 7 & 1;
	bool overflow = flags >> 11 & 1, is = 1;

	switch (condition >> 1) {
	case 0: is = overflow; break;
	case 1: is = carry; break;
	case 2: is = zero; break;
	case 3: is = carry | zero; break;
	case 4: is = sign; break;
	case 5: is = parity; break;
	case 6: is = sign ^ overflow; break;
	case 7: is = zero | (sign ^ overflow); break;
	default: return 1; /* ALWAYS */
	}
	return is ^ (condition & 1);
}

/* Numbered as in instructions. */
static __always_inline __u64 register_value(struct pt_regs *regs, __u8 number)
{
	__u64 value = 0;

	/* The barriers keep the loads apart: at an address that is worked out the verifier allows none. */
	switch (number) {
	case 0: value = regs->ax; barrier_var(value); break;
	case 1: value = regs->cx; barrier_var(value); break;
	case 2: value = regs->dx; barrier_var(value); break;
	case 3: value = regs->bx; barrier_var(value); break;
	case 5: value = regs->bp; barrier_var(value); break;
	case 6: value = regs->si; barrier_var(value); break;
	case 7: value = regs->di; barrier_var(value); break;
	case 8: value = regs->r8; barrier_var(value); break;
	case 9: value = regs->r9; barrier_var(value); break;
	case 10: value = regs->r10; barrier_var(value); break;
	case 11: value = regs->r11; barrier_var(value); break;
	case 12: value = regs->r12; barrier_var(value); break;
	case 13: value = regs->r13; barrier_var(value); break;
	case 14: value = regs->r14; barrier_var(value); break;
	case 15: value = regs->r15; barrier_var(value); break;
	}
	return value;
}

static __always_inline struct thread *thread_of(struct task_struct *task, __u32 tid, __u32 pid)
{
	struct thread *thread = bpf_map_lookup_elem(&threads, &tid);

	if (thread && !thread->died)
		return thread;
	if (!thread) {
		bpf_map_update_elem(&threads, &tid, &no_thread, BPF_NOEXIST);
		thread = bpf_map_lookup_elem(&threads, &tid);
	}
	if (thread) {
		thread->pid = pid;
		thread->born = BPF_CORE_READ(task, start_time);
		thread->died = 0;
	}
	return thread;
}

struct hit {
	__u64 now;
	__u64 sp;
	__u32 tid;
	__u32 function;
	bool on_signal_stack;
	bool is_child;
	bool is_rewritten;
};

/* kernel/events/uprobes.c, get_trampoline_vaddr(): where rewritten return addresses lead. */
static __always_inline __u64 trampoline(void)
{
	struct task_struct *task = (struct task_struct *)bpf_get_current_task();
	struct xol_area *area = BPF_CORE_READ(task, mm, uprobes_state.xol_area);

	return area ? BPF_CORE_READ(area, vaddr) : 0;
}

static __noinline void enter(struct thread *thread, struct pt_regs *regs, struct hit *hit)
{
	struct frame *frame;
	__u64 caller = 0;
	__u16 depth;

	bpf_probe_read_user(&caller, sizeof(caller), (void *)hit->sp);
	drop_dead(thread, hit->tid, hit->sp, hit->on_signal_stack, 0);
	frame = innermost(thread);
	if (frame && frame->sp == hit->sp && frame->on_signal_stack == hit->on_signal_stack) {
		if (frame->function == hit->function && frame->is_looping && frame->caller == caller) {
			frame->is_looping = 0;
			return;
		}
		if (frame->is_rewritten && hit->is_rewritten && caller == trampoline()) {
			/* A jump out of a function that goes on: both return together.  To its own entry, it is a loop. */
			if (frame->function == hit->function)
				return;
			caller = frame->caller;
		} else {
			/* Its return address has been overwritten. */
			drop_dead(thread, hit->tid, hit->sp + 1, hit->on_signal_stack, 1);
			frame = innermost(thread);
		}
	}
	/* A child is what a call in question calls itself. */
	if (hit->is_child && (!frame || frame->is_child))
		return;
	depth = depth_of(thread, hit->function);
	frame = frame_at(thread, thread->depth);
	thread->numbers++;
	if (!frame) {
		count(COUNTER_TOO_DEEP);
		return;
	}
	frame->sp = hit->sp;
	frame->start = hit->now;
	frame->blocked = thread->blocked;
	frame->runnable = thread->runnable;
	frame->preempted = thread->preempted;
	frame->caller = caller;
	frame->number = thread->numbers - 1;
	frame->probes = thread->probes;
	frame->entry = regs->ip;
	frame->function = hit->function;
	frame->cpu = bpf_get_smp_processor_id();
	frame->depth = depth;
	frame->is_child = hit->is_child;
	frame->is_looping = 0;
	frame->on_signal_stack = hit->on_signal_stack;
	frame->is_rewritten = hit->is_rewritten;
	thread->depth++;
}

/* A return of a call that was running before there were probes. */
static __always_inline void leave_unknown(struct thread *thread, struct hit *hit)
{
	struct frame frame = {
		.start = hit->now,
		.blocked = thread->blocked,
		.runnable = thread->runnable,
		.preempted = thread->preempted,
		.function = hit->function,
		.number = thread->numbers++,
		.cpu = bpf_get_smp_processor_id(),
		.probes = thread->probes,
	};

	emit(thread, &frame, hit->tid, hit->now, END_NO_ENTRY);
}

static __noinline void leave(struct thread *thread, struct pt_regs *regs, struct hit *hit, __u64 cookie, __u8 how)
{
	__u8 number = cookie >> 16;
	struct frame *frame;

	drop_dead(thread, hit->tid, hit->sp, hit->on_signal_stack, 0);
	frame = innermost(thread);
	if (frame && frame->function == hit->function && frame->sp == hit->sp) {
		if (number != NO_REGISTER) {
			__u64 *length = bpf_map_lookup_elem(&lengths, &hit->function);

			if (length && register_value(regs, number) - frame->entry < *length)
				return;
		}
		emit(thread, frame, hit->tid, hit->now, how);
		thread->depth--;
		return;
	}
	/* A return address is rewritten at an entry: without one that was seen, there was no room for its frame. */
	if (how != END_RETURN || hit->is_child || hit->is_rewritten)
		return;
	/* Had it been called below a frame that we know, we would know it, too. */
	if (thread->depth == 0)
		leave_unknown(thread, hit);
	else if (thread->depth < MAX_DEPTH)
		count(COUNTER_ODD_RETURN);
}

static __always_inline void loop(struct thread *thread, struct hit *hit)
{
	struct frame *frame;

	drop_dead(thread, hit->tid, hit->sp, hit->on_signal_stack, 0);
	frame = innermost(thread);
	if (frame && frame->function == hit->function && frame->sp == hit->sp)
		frame->is_looping = 1;
}

SEC("uprobe")
int on_probe(struct pt_regs *regs)
{
	__u64 cookie = bpf_get_attach_cookie(regs), id = bpf_get_current_pid_tgid();
	struct task_struct *task = (struct task_struct *)bpf_get_current_task();
	struct hit hit = {
		.now = bpf_ktime_get_ns(),
		.sp = regs->sp,
		.tid = (__u32)id,
		.function = cookie >> 32,
		.is_child = cookie >> 24 & 1,
		.is_rewritten = cookie >> 25 & 1,
	};
	struct thread *thread;

	if (!holds(cookie >> 8, regs->flags))
		return 0;
	thread = thread_of(task, hit.tid, id >> 32);
	if (!thread) {
		if (cookie & ACTION_ENTRY)
			count(COUNTER_NO_ROOM);
		return 0;
	}
	/* A uretprobe is hit when the return address has been popped. */
	if (hit.is_rewritten && cookie & ACTION_RETURN)
		hit.sp -= sizeof(__u64);
	hit.on_signal_stack = is_on_signal_stack(task, hit.sp);
	thread->probes++;
	if (cookie & ACTION_ENTRY)
		enter(thread, regs, &hit);
	if (cookie & ACTION_RETURN)
		leave(thread, regs, &hit, cookie, END_RETURN);
	else if (cookie & ACTION_JUMP)
		leave(thread, regs, &hit, cookie, END_JUMP);
	else if (cookie & ACTION_LOOP)
		loop(thread, &hit);
	thread->seen = hit.now;
	return 0;
}

/* How often functions are called, and nothing else. */
SEC("uprobe")
int on_count(struct pt_regs *regs)
{
	__u32 function = bpf_get_attach_cookie(regs) >> 32;
	__u64 *value = bpf_map_lookup_elem(&hits, &function);

	if (value)
		(*value)++;
	return 0;
}

static __always_inline void comes_back(struct thread *thread, __u64 now)
{
	__u64 out = thread->out, woken = thread->woken;

	thread->out = 0;
	if (!out)
		return;
	if (thread->is_preempted) {
		thread->preempted += now - out;
		return;
	}
	/* Where no wake-up was seen it cannot be told how long it waited for a CPU. */
	if (woken < out)
		woken = now;
	thread->blocked += woken - out;
	thread->runnable += now - woken;
}

static __noinline void fill_interval(struct interval *interval, struct thread *thread)
{
	interval->out = thread->out;
	interval->woken = thread->woken < thread->out ? 0 : thread->woken;
	interval->outermost = thread->frames[0].number;
	interval->syscall = thread->syscall;
	interval->waker_pid = thread->waker_pid;
	interval->waker_tid = thread->waker_tid;
	__builtin_memcpy(interval->waker_comm, thread->waker_comm, COMM_LEN);
	__builtin_memcpy(interval->stack, thread->stack, sizeof(interval->stack));
	__builtin_memcpy(interval->waker_stack, thread->waker_stack, sizeof(interval->waker_stack));
	interval->is_preempted = thread->is_preempted;
	interval->is_interrupt = thread->is_interrupt;
}

/* Tells why a thread with open calls was off the CPU. */
static __noinline void tell(struct thread *thread, __u32 tid, __u64 now)
{
	struct interval *interval;

	if (!thread->out || !thread->depth)
		return;
	interval = bpf_ringbuf_reserve(&calls, sizeof(*interval), 0);
	if (!interval) {
		count(COUNTER_LOST_INTERVALS);
		return;
	}
	fill_interval(interval, thread);
	interval->in = now;
	interval->tid = tid;
	bpf_ringbuf_submit(interval, BPF_RB_NO_WAKEUP);
}

SEC("tp_btf/sched_switch")
int BPF_PROG(on_switch, bool preempt, struct task_struct *prev, struct task_struct *next)
{
	__u32 out = BPF_CORE_READ(prev, pid), in = BPF_CORE_READ(next, pid);
	struct thread *leaves = bpf_map_lookup_elem(&threads, &out);
	struct thread *comes = bpf_map_lookup_elem(&threads, &in);
	__u64 now = bpf_ktime_get_ns();

	if (leaves) {
		if (leaves->out)
			count(COUNTER_MISSED_SWITCHES);
		leaves->out = now;
		leaves->is_preempted = preempt || !sleeps(prev);
		if (leaves->depth) {
			leaves->syscall = current_syscall(prev);
			leaves->stack[0] = 0;
			if (leaves->syscall == NO_SYSCALL && !leaves->is_preempted) {
				long bytes = bpf_get_stack(ctx, leaves->stack, sizeof(leaves->stack), 0);

				if (bytes >= 0 && bytes < (long)sizeof(leaves->stack))
					leaves->stack[(__u64)bytes / 8 % STACK_LEN] = 0;
			}
		}
	}
	if (comes) {
		if (!comes->out)
			count(COUNTER_MISSED_SWITCHES);
		tell(comes, in, now);
		comes_back(comes, now);
	}
	return 0;
}

SEC("tp_btf/sched_waking")
int BPF_PROG(on_waking, struct task_struct *task)
{
	__u32 tid = BPF_CORE_READ(task, pid);
	struct thread *thread = bpf_map_lookup_elem(&threads, &tid);
	long bytes;

	if (!thread)
		return 0;
	thread->woken = bpf_ktime_get_ns();
	if (!thread->depth)
		return 0;
	thread->is_interrupt = is_interrupt(bpf_get_current_task_btf());
	thread->waker_pid = bpf_get_current_pid_tgid() >> 32;
	thread->waker_tid = bpf_get_current_pid_tgid();
	bpf_get_current_comm(thread->waker_comm, sizeof(thread->waker_comm));
	bytes = bpf_get_stack(ctx, thread->waker_stack, sizeof(thread->waker_stack), 0);
	if (bytes < 0)
		bytes = 0;
	if (bytes < (long)sizeof(thread->waker_stack))
		thread->waker_stack[(__u64)bytes / 8 % WAKER_STACK_LEN] = 0;
	return 0;
}

SEC("tp_btf/sched_process_exit")
int BPF_PROG(on_exit, struct task_struct *task)
{
	__u32 tid = BPF_CORE_READ(task, pid);
	struct thread *thread = bpf_map_lookup_elem(&threads, &tid);
	__u64 now = bpf_ktime_get_ns();
	struct frame life = {};

	if (!thread)
		return 0;
	for (int i = 0; i < MAX_DEPTH; i++) {
		struct frame *frame = innermost(thread);

		if (!frame)
			break;
		emit(thread, frame, tid, now, END_THREAD);
		thread->depth--;
	}
	life.start = thread->born;
	thread->died = now;
	/* What could not be told is read from here at the end. */
	if (!emit(thread, &life, tid, now, END_OF_THREAD))
		bpf_map_delete_elem(&threads, &tid);
	return 0;
}
