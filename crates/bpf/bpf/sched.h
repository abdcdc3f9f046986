/* SPDX-License-Identifier: Apache-2.0 OR MIT */
/* What sched.bpf.c and user space agree on.  `src/sched_wire.rs` reads it; a test holds the two against each other. */
#ifndef SCHED_H
#define SCHED_H

#include "scheduler.h"

/* Addresses of stacks that are told. */
#define STACK_LEN 32
#define USER_STACK_LEN 16

/* What the numbers in the map `wanted` are. */
enum by {
	BY_PROCESS = 0,
	BY_THREAD = 1,
	BY_CPU = 2,
};

struct settings {
	__u32 by;     /* enum by */
	__u32 follow; /* by process: those that a wanted one creates, too */
	__u32 waker_stacks; /* of user code: who wakes has one, too */
};

struct sched_task {
	__u32 tid;
	__s32 priority;
	char comm[COMM_LEN];
};

struct sched_event {
	__u64 time;  /* ns of CLOCK_MONOTONIC */
	__u64 state; /* of who leaves, as the tracepoint has it: 0 and 0x100 are no sleep */
	__u32 pid;   /* the current process and thread: of a switch, who leaves */
	__u32 tid;
	__u32 cpu;
	__s32 syscall;            /* that who leaves is in; NO_SYSCALL: none */
	struct sched_task first;  /* who leaves, or is woken */
	struct sched_task second; /* who comes, or the current thread */
	__u32 target;             /* the CPU that who is woken was on */
	__u8 is_waking;           /* or a switch */
	__u8 is_interrupt;        /* the current thread was probably only interrupted */
	__u8 unused[2];
	__u64 stack[STACK_LEN];   /* of the kernel, innermost first; 0: no more */
	__u64 user_stack[USER_STACK_LEN]; /* of who wakes; only there if that was asked for */
};

/* What is counted. */
enum counter {
	COUNTER_LOST = 0, /* events that had no room */
	COUNTERS = 1,
};

#endif
