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
#include "mode.h"
#include "frames.h"
#include "jumps.h"
#include "off_cpu.h"
#include "stacks.h"

char LICENSE[] SEC("license") = "Dual MIT/GPL";

/* Of each function that is probed. */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1); /* set when loaded */
	__type(key, __u32);
	__type(value, struct function);
} functions SEC(".maps");

static const struct thread no_thread;

/* kernel/signal.c, __on_sig_stack() */
static __always_inline bool is_on_signal_stack(struct task_struct *task, __u64 sp)
{
	__u64 start = BPF_CORE_READ(task, sas_ss_sp);

	return sp > start && sp - start <= BPF_CORE_READ(task, sas_ss_size);
}

/* `thread` is what is known of it. */
static __always_inline struct thread *thread_of(struct thread *thread, struct task_struct *task, __u32 tid)
{
	if (thread && !thread->died)
		return thread;
	if (!thread) {
		bpf_map_update_elem(&threads, &tid, &no_thread, BPF_NOEXIST);
		thread = bpf_map_lookup_elem(&threads, &tid);
	}
	if (thread) {
		thread->pid = process_number_of(task);
		thread->tid = number_of(task);
		thread->born = BPF_CORE_READ(task, start_time);
		thread->died = 0;
	}
	return thread;
}

struct hit {
	__u64 now;
	__u64 sp;
	__u64 length; /* of the function's first part */
	__u32 tid;
	__u32 function;
	__u8 bytes_in; /* from the function's first instruction */
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

/* A call, or a region, begins. */
static __always_inline void push(struct thread *thread, struct pt_regs *regs, struct hit *hit, __u64 caller)
{
	__u16 depth = depth_of(thread, hit->function);
	struct frame *frame = frame_at(thread, thread->depth);

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
	frame->entry = regs->ip - hit->bytes_in;
	frame->function = hit->function;
	frame->cpu = bpf_get_smp_processor_id();
	frame->depth = depth;
	frame->is_child = hit->is_child;
	frame->is_looping = 0;
	frame->on_signal_stack = hit->on_signal_stack;
	frame->is_rewritten = hit->is_rewritten;
	thread->depth++;
}

static __noinline void enter(struct thread *thread, struct pt_regs *regs, struct hit *hit)
{
	struct frame *frame;
	__u64 caller = 0;

	bpf_probe_read_user(&caller, sizeof(caller), (void *)hit->sp);
	drop_dead(thread, hit->sp, hit->on_signal_stack, 0);
	frame = innermost(thread);
	if (frame && frame->sp == hit->sp && frame->on_signal_stack == hit->on_signal_stack) {
		if (frame->function == hit->function && frame->is_looping && frame->caller == caller) {
			frame->is_looping = 0;
			return;
		}
		if (frame->is_rewritten && caller == trampoline()) {
			/* A jump out of a function that goes on: both return together.  To its own entry, it is a loop. */
			if (frame->function == hit->function)
				return;
			caller = frame->caller;
		} else {
			/* Its return address has been overwritten. */
			drop_dead(thread, hit->sp + 1, hit->on_signal_stack, 1);
			frame = innermost(thread);
		}
	}
	/* A child is what a call in question calls itself. */
	if (hit->is_child && (!frame || frame->is_child))
		return;
	push(thread, regs, hit, caller);
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

	emit(thread, &frame, hit->now, END_NO_ENTRY);
}

static __noinline void leave(struct thread *thread, struct pt_regs *regs, struct hit *hit, __u64 cookie, __u8 how)
{
	__u8 number = COOKIE_REGISTER(cookie);
	struct frame *frame;

	drop_dead(thread, hit->sp, hit->on_signal_stack, 0);
	frame = innermost(thread);
	if (frame && frame->function == hit->function && frame->sp == hit->sp) {
		if (number != NO_REGISTER) {
			if (register_value(regs, number) - frame->entry < hit->length)
				return;
		}
		emit(thread, frame, hit->now, how);
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

	drop_dead(thread, hit->sp, hit->on_signal_stack, 0);
	frame = innermost(thread);
	if (frame && frame->function == hit->function && frame->sp == hit->sp)
		frame->is_looping = 1;
}

/* Regions of one frame that are open at once. */
#define MAX_OVERLAPPING 16

/* Ends the region, if it is open in the frame of this hit: it is one of the innermost then, and those of its frame that began later stay. */
static __noinline void end_region(struct thread *thread, struct hit *hit, __u8 how)
{
	for (__u32 i = 0; i < MAX_OVERLAPPING; i++) {
		struct frame *frame = frame_at(thread, thread->depth - 1 - i);
		struct frame *top = innermost(thread);

		if (!frame || !top || frame->sp != hit->sp || frame->on_signal_stack != hit->on_signal_stack)
			return;
		if (frame->function != hit->function)
			continue;
		emit(thread, frame, hit->now, how);
		/* Which of them is above which means nothing. */
		*frame = *top;
		thread->depth--;
		return;
	}
}

static __always_inline void pass_region(struct thread *thread, struct pt_regs *regs, struct hit *hit, __u64 cookie)
{
	__u64 caller = 0;

	drop_dead(thread, hit->sp, hit->on_signal_stack, 0);
	if (cookie & ACTION_RETURN)
		end_region(thread, hit, END_RETURN);
	if (cookie & ACTION_ENTRY) {
		end_region(thread, hit, END_ANEW);
		bpf_probe_read_user(&caller, sizeof(caller), (void *)hit->sp);
		push(thread, regs, hit, caller);
	}
}

/* Where the return address of the frame is that a region is in: below the CFA, as the unwind table has it. */
static __always_inline __u64 frame_of_region(struct pt_regs *regs, __u64 cookie)
{
	__u64 sp = regs->sp, bp = regs->bp;

	/* As in register_value(). */
	barrier_var(sp);
	barrier_var(bp);
	return (cookie & ACTION_BY_RBP ? bp : sp) + sizeof(__u64) * COOKIE_FRAME_WORDS(cookie) - sizeof(__u64);
}

static __always_inline void time_hit(struct pt_regs *regs, __u64 cookie, struct thread *thread, __u32 tid)
{
	struct task_struct *task = (struct task_struct *)bpf_get_current_task();
	struct hit hit = {
		.now = bpf_ktime_get_ns(),
		.sp = regs->sp,
		.tid = tid,
		.function = COOKIE_FUNCTION(cookie),
		.bytes_in = COOKIE_BYTES_IN(cookie),
		.is_child = COOKIE_IS_CHILD(cookie),
	};
	struct function *function = bpf_map_lookup_elem(&functions, &hit.function);

	if (!function || !function->is_timed)
		return;
	if (cookie & ACTION_REGION)
		hit.sp = frame_of_region(regs, cookie);
	else if (!holds(COOKIE_CONDITION(cookie), regs->flags))
		return;
	hit.length = function->length;
	hit.is_rewritten = function->is_rewritten;
	thread = thread_of(thread, task, hit.tid);
	if (!thread) {
		if (cookie & ACTION_ENTRY)
			count(COUNTER_NO_ROOM);
		return;
	}
	/* A uretprobe is hit when the return address has been popped. */
	if (hit.is_rewritten && cookie & ACTION_RETURN)
		hit.sp -= sizeof(__u64);
	hit.on_signal_stack = is_on_signal_stack(task, hit.sp);
	if (cookie & ACTION_REGION) {
		pass_region(thread, regs, &hit, cookie);
		thread->seen = hit.now;
		return;
	}
	if (cookie & ACTION_ENTRY)
		enter(thread, regs, &hit);
	if (cookie & ACTION_RETURN)
		leave(thread, regs, &hit, cookie, END_RETURN);
	else if (cookie & ACTION_JUMP)
		leave(thread, regs, &hit, cookie, END_JUMP);
	else if (cookie & ACTION_LOOP)
		loop(thread, &hit);
	thread->seen = hit.now;
}

SEC("uprobe")
int on_probe(struct pt_regs *regs)
{
	__u64 cookie = bpf_get_attach_cookie(regs);
	bool is_child = COOKIE_IS_CHILD(cookie);
	struct cpu *cpu = come_in();
	struct thread *thread;
	__u32 tid = bpf_get_current_pid_tgid();
	__u64 number;

	if (!cpu)
		return 0;
	number = count_hit(COOKIE_FUNCTION(cookie), cookie & ACTION_ENTRY);
	thread = bpf_map_lookup_elem(&threads, &tid);
	/* Whatever comes of it, it has taken time of the calls that are open: also of a child, or at a jump that is not taken. */
	if (thread) {
		thread->probes++;
		if (thread->out)
			has_come_back(thread);
	}
	if (mode == MODE_ALL || (mode == MODE_ASKED && !is_child))
		time_hit(regs, cookie, thread, tid);
	else if (mode == MODE_ASKED)
		cpu->child_hit = bpf_ktime_get_ns();
	else if (mode == MODE_COUNT && number)
		keep_stack(regs, COOKIE_FUNCTION(cookie), number);
	go_out(cpu);
	return 0;
}

/* Counts, and nothing else: what a bare probe costs. */
SEC("uprobe")
int on_count(struct pt_regs *regs)
{
	__u64 cookie = bpf_get_attach_cookie(regs);

	count_hit(COOKIE_FUNCTION(cookie), cookie & ACTION_ENTRY);
	return 0;
}

static __always_inline void end_all(struct thread *thread, __u64 now)
{
	for (int i = 0; i < MAX_DEPTH; i++) {
		struct frame *frame = innermost(thread);

		if (!frame)
			break;
		emit(thread, frame, now, END_THREAD);
		thread->depth--;
	}
}

static __always_inline void end_thread(struct thread *thread, __u32 tid, __u64 now)
{
	struct frame life = { .start = thread->born };

	end_all(thread, now);
	thread->died = now;
	/* What could not be told is read from here at the end. */
	if (!emit(thread, &life, now, THREAD_ENDED))
		bpf_map_delete_elem(&threads, &tid);
}

SEC("tp_btf/sched_process_exit")
int BPF_PROG(on_exit, struct task_struct *task)
{
	__u32 tid = BPF_CORE_READ(task, pid);
	struct thread *thread = bpf_map_lookup_elem(&threads, &tid);

	if (thread && mode != MODE_OFF)
		end_thread(thread, tid, bpf_ktime_get_ns());
	return 0;
}

/* The stack of the program before is gone; its other threads have ended.  A thread that was not the first takes that one's number. */
SEC("tp_btf/sched_process_exec")
int BPF_PROG(on_exec, struct task_struct *task, int old_tid)
{
	__u32 tid = old_tid;
	struct thread *thread = bpf_map_lookup_elem(&threads, &tid);

	if (!thread || mode == MODE_OFF)
		return 0;
	if (old_tid == BPF_CORE_READ(task, pid))
		end_all(thread, bpf_ktime_get_ns());
	else
		end_thread(thread, tid, bpf_ktime_get_ns());
	return 0;
}
