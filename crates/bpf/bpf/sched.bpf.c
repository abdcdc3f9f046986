// SPDX-License-Identifier: Apache-2.0 OR MIT
/*
 * The scheduler's events of the threads that are recorded: why they are off their CPU.
 *
 *   sched_switch        of who leaves or comes, if either is wanted
 *   sched_waking        of who is woken
 *   sched_process_fork  which processes are wanted, too
 *
 * Nothing is put together here: what a thread waited for, and how long, is found out where the recording is analysed.
 */
#include "kernel.h"
#include <bpf/bpf_core_read.h>
#include <bpf/bpf_helpers.h>
#include <bpf/bpf_tracing.h>

#include "sched.h"
#include "counters.h"

char LICENSE[] SEC("license") = "Dual MIT/GPL";

const volatile struct settings settings;

struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, 1024); /* set when loaded */
	__type(key, __u32);
	__type(value, __u8);
} wanted SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_RINGBUF);
	__uint(max_entries, 1 << 20); /* set when loaded */
} events SEC(".maps");

/* `cpu`: where the thread is, or was. */
static __always_inline bool is_wanted(struct task_struct *task, __u32 cpu)
{
	__u32 number = cpu;

	if (settings.by == BY_PROCESS)
		number = BPF_CORE_READ(task, tgid);
	else if (settings.by == BY_THREAD)
		number = BPF_CORE_READ(task, pid);
	return bpf_map_lookup_elem(&wanted, &number) != 0;
}

static __always_inline struct sched_event *reserve(void)
{
	struct sched_event *event;

	/* What is set is known when the programs are loaded, so that the verifier sees one size. */
	if (settings.waker_stacks)
		event = bpf_ringbuf_reserve(&events, sizeof(*event), 0);
	else
		event = bpf_ringbuf_reserve(&events, __builtin_offsetof(struct sched_event, user_stack), 0);
	if (!event)
		count(COUNTER_LOST);
	return event;
}

static __always_inline void fill_task(struct sched_task *to, struct task_struct *task)
{
	to->tid = BPF_CORE_READ(task, pid);
	to->priority = BPF_CORE_READ(task, prio);
	BPF_CORE_READ_STR_INTO(&to->comm, task, comm);
}

/* Not inline, so that the structure is among the object's types. */
static __noinline void fill(struct sched_event *event)
{
	event->time = bpf_ktime_get_ns();
	event->pid = bpf_get_current_pid_tgid() >> 32;
	event->tid = bpf_get_current_pid_tgid();
	event->cpu = bpf_get_smp_processor_id();
	event->state = 0;
	event->syscall = NO_SYSCALL;
	event->target = 0;
	event->is_waking = 0;
	event->is_interrupt = 0;
	event->stack[0] = 0;
}

/* As the tracepoint has it: what has no letter there is a sleep all the same. */
static __always_inline __u64 told_state(bool preempt, struct task_struct *task)
{
	const __u64 letters = 0xff, uninterruptible = 2, preempted = 0x100;
	__u64 state = state_of(task);

	if (preempt)
		return preempted;
	return state && !(state & letters) ? uninterruptible : state & letters;
}

SEC("tp_btf/sched_switch")
int BPF_PROG(on_switch, bool preempt, struct task_struct *prev, struct task_struct *next)
{
	__u32 cpu = bpf_get_smp_processor_id();
	bool leaves = is_wanted(prev, cpu);
	struct sched_event *event;

	if (!leaves && !is_wanted(next, cpu))
		return 0;
	event = reserve();
	if (!event)
		return 0;
	fill(event);
	fill_task(&event->first, prev);
	fill_task(&event->second, next);
	event->state = told_state(preempt, prev);
	if (leaves && BPF_CORE_READ(prev, pid)) {
		event->syscall = current_syscall(prev);
		if (!preempt && event->state)
			fill_stack(ctx, event->stack, STACK_LEN, 0);
	}
	if (settings.waker_stacks)
		event->user_stack[0] = 0;
	bpf_ringbuf_submit(event, BPF_RB_NO_WAKEUP);
	return 0;
}

static __always_inline __u32 last_cpu(struct task_struct *task)
{
	return bpf_core_field_exists(task->wake_cpu) ? BPF_CORE_READ(task, wake_cpu) : 0;
}

SEC("tp_btf/sched_waking")
int BPF_PROG(on_waking, struct task_struct *task)
{
	struct task_struct *current = bpf_get_current_task_btf();
	__u32 cpu = last_cpu(task);
	struct sched_event *event;

	if (!is_wanted(task, cpu))
		return 0;
	event = reserve();
	if (!event)
		return 0;
	fill(event);
	fill_task(&event->first, task);
	fill_task(&event->second, current);
	event->target = cpu;
	event->is_waking = 1;
	event->is_interrupt = is_interrupt(current);
	fill_stack(ctx, event->stack, STACK_LEN, 0);
	if (settings.waker_stacks) {
		event->user_stack[0] = 0;
		if (!event->is_interrupt)
			fill_stack(ctx, event->user_stack, USER_STACK_LEN, BPF_F_USER_STACK);
	}
	bpf_ringbuf_submit(event, BPF_RB_NO_WAKEUP);
	return 0;
}

SEC("tp_btf/sched_process_fork")
int BPF_PROG(on_fork, struct task_struct *parent, struct task_struct *child)
{
	__u32 pid = BPF_CORE_READ(child, tgid);
	__u8 yes = 1;

	if (settings.follow && is_wanted(parent, 0))
		bpf_map_update_elem(&wanted, &pid, &yes, BPF_ANY);
	return 0;
}
