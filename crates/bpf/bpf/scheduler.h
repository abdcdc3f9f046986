/* SPDX-License-Identifier: Apache-2.0 OR MIT */
/* What all programs ask of a thread that the scheduler has to do with. */
#ifndef SCHEDULER_H
#define SCHEDULER_H

#include "kernel.h"
#include <bpf/bpf_core_read.h>
#include <bpf/bpf_helpers.h>

#define NO_SYSCALL -1
#define COMM_LEN 16

/*
 * The addresses of the current stack, innermost first; where there are fewer than fit, a zero ends them.  `len`: how many fit, a
 * power of two.
 */
static __always_inline void fill_stack(void *ctx, __u64 *stack, __u32 len, __u64 flags)
{
	long bytes = bpf_get_stack(ctx, stack, len * sizeof(*stack), flags);

	if (bytes < 0)
		bytes = 0;
	if (bytes < (long)(len * sizeof(*stack)))
		stack[(__u64)bytes / sizeof(*stack) % len] = 0;
}

static __always_inline __u64 state_of(struct task_struct *task)
{
	struct task_struct___before_5_14 *old = (void *)task;

	if (bpf_core_field_exists(task->__state))
		return BPF_CORE_READ(task, __state);
	return BPF_CORE_READ(old, state);
}

static __always_inline bool sleeps(struct task_struct *task)
{
	return state_of(task) != 0;
}

/* The system call that the thread is in: its number stands there from the entry on, and is negative in interrupts and faults. */
static __always_inline __s32 current_syscall(struct task_struct *task)
{
	struct pt_regs *regs = (struct pt_regs *)bpf_task_pt_regs(task);
	__s64 number = NO_SYSCALL;

	bpf_probe_read_kernel(&number, sizeof(number), &regs->orig_ax);
	return number >= 0 && number < 1024 ? number : NO_SYSCALL;
}

/*
 * A timer or a device wakes on the time of whoever runs when it interrupts.  The stack tells, to who knows its names.  For who
 * does not: a thread wakes others in system calls; where the current one is in none, and is not the kernel's own, it was interrupted.
 */
static __always_inline bool is_interrupt(struct task_struct *current)
{
	const unsigned int kernel_thread = 0x00200000; /* include/linux/sched.h, PF_KTHREAD */

	if (BPF_CORE_READ(current, pid) == 0)
		return 1;
	return !(BPF_CORE_READ(current, flags) & kernel_thread) && current_syscall(current) == NO_SYSCALL;
}

#endif
