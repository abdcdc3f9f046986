/* SPDX-License-Identifier: Apache-2.0 OR MIT */
/* Why threads with open calls are off their CPUs: at the scheduler's tracepoints. */
#ifndef OFF_CPU_H
#define OFF_CPU_H

#include "frames.h"
#include "scheduler.h"
#include <bpf/bpf_tracing.h>

/* User stacks of who wakes are asked for; set when loaded.  Alone in its section, which has then one value. */
const volatile __u32 waker_stacks SEC(".rodata.settings") = 0;

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
	__builtin_memcpy(interval->waker_user_stack, thread->waker_user_stack, sizeof(interval->waker_user_stack));
	interval->is_preempted = thread->is_preempted;
	interval->is_interrupt = thread->is_interrupt;
}

/* Tells why a thread with open calls was off the CPU. */
static __noinline void tell(struct thread *thread, __u64 now)
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
	interval->tid = thread->tid;
	bpf_ringbuf_submit(interval, BPF_RB_NO_WAKEUP);
}

/* The kernel did not tell that the thread came back: it slept until it was woken, if it was, and what followed looks like time on the CPU. */
static __noinline void has_come_back(struct thread *thread)
{
	count(COUNTER_MISSED_SWITCHES);
	if (thread->woken > thread->out) {
		tell(thread, thread->woken);
		comes_back(thread, thread->woken);
	}
	thread->out = 0;
}

SEC("tp_btf/sched_switch")
int BPF_PROG(on_switch, bool preempt, struct task_struct *prev, struct task_struct *next)
{
	__u32 out = BPF_CORE_READ(prev, pid), in = BPF_CORE_READ(next, pid);
	struct thread *leaves = bpf_map_lookup_elem(&threads, &out);
	struct thread *comes = bpf_map_lookup_elem(&threads, &in);
	__u64 now = bpf_ktime_get_ns();

	if (mode == MODE_OFF)
		return 0;
	if (leaves) {
		if (leaves->out)
			has_come_back(leaves);
		leaves->out = now;
		leaves->is_preempted = preempt || !sleeps(prev);
		if (leaves->depth) {
			leaves->syscall = current_syscall(prev);
			leaves->stack[0] = 0;
			if (leaves->syscall == NO_SYSCALL && !leaves->is_preempted)
				fill_stack(ctx, leaves->stack, STACK_LEN, 0);
		}
	}
	if (comes) {
		if (!comes->out)
			count(COUNTER_MISSED_SWITCHES);
		tell(comes, now);
		comes_back(comes, now);
	}
	return 0;
}

SEC("tp_btf/sched_waking")
int BPF_PROG(on_waking, struct task_struct *task)
{
	__u32 tid = BPF_CORE_READ(task, pid);
	struct thread *thread = bpf_map_lookup_elem(&threads, &tid);

	if (!thread || mode == MODE_OFF)
		return 0;
	thread->woken = bpf_ktime_get_ns();
	if (!thread->depth)
		return 0;
	thread->is_interrupt = is_interrupt(bpf_get_current_task_btf());
	thread->waker_pid = process_number_of(bpf_get_current_task_btf());
	thread->waker_tid = number_of(bpf_get_current_task_btf());
	bpf_get_current_comm(thread->waker_comm, sizeof(thread->waker_comm));
	fill_stack(ctx, thread->waker_stack, WAKER_STACK_LEN, 0);
	thread->waker_user_stack[0] = 0;
	if (waker_stacks && !thread->is_interrupt)
		fill_stack(ctx, thread->waker_user_stack, WAKER_USER_STACK_LEN, BPF_F_USER_STACK);
	return 0;
}

#endif
