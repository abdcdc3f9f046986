/* SPDX-License-Identifier: Apache-2.0 OR MIT */
/*
 * Stacks at the entries of functions, while calls are counted: who stands above a call decides whether its return address may be
 * rewritten.  Registers and memory are kept as they are; user space follows them by the tables that exceptions are unwound with.
 * src/stacks.rs reads them; a test holds the two against each other.
 */
#ifndef STACKS_H
#define STACKS_H

#include "kernel.h"
#include "numbers.h"
#include <bpf/bpf_helpers.h>

#define PAGE_BYTES 4096
#define STACK_PAGES 9
/* For each function and each address that it returns to. */
#define STACKS_FOR_EACH_CALLER 2

struct seen_stack {
	__u64 registers[17]; /* by their numbers in unwind tables; the last is the function's first instruction */
	__u64 base;          /* address of the first byte that is kept */
	__u32 function;      /* as in the cookie */
	__u32 pid;
	__u32 tid;
	__u32 bytes;         /* that were read */
	__u8 kept[STACK_PAGES * PAGE_BYTES];
};

struct {
	__uint(type, BPF_MAP_TYPE_RINGBUF);
	__uint(max_entries, 1 << 20);
} stacks SEC(".maps");

struct from {
	__u64 return_address;
	__u32 function;
	__u32 pid;
};

/* Stacks that were kept of each. */
struct {
	__uint(type, BPF_MAP_TYPE_LRU_HASH);
	__uint(max_entries, 4096);
	__type(key, struct from);
	__type(value, __u32);
} callers SEC(".maps");

static __noinline void fill_registers(struct seen_stack *stack, struct pt_regs *regs)
{
	__u64 *to = stack->registers;

	to[0] = regs->ax;
	to[1] = regs->dx;
	to[2] = regs->cx;
	to[3] = regs->bx;
	to[4] = regs->si;
	to[5] = regs->di;
	to[6] = regs->bp;
	to[7] = regs->sp;
	to[8] = regs->r8;
	to[9] = regs->r9;
	to[10] = regs->r10;
	to[11] = regs->r11;
	to[12] = regs->r12;
	to[13] = regs->r13;
	to[14] = regs->r14;
	to[15] = regs->r15;
	to[16] = regs->ip;
}

/*
 * The stack of a call that begins: of the first ones of its function from there, and of the first, second, fourth, eighth ... of its
 * function on this CPU, as the first are the least deep of a recursion.
 */
static __always_inline void keep_stack(struct pt_regs *regs, __u32 function, __u64 number)
{
	struct task_struct *task = (struct task_struct *)bpf_get_current_task();
	struct from from = { .function = function, .pid = bpf_get_current_pid_tgid() >> 32 };
	__u32 *known, kept = 0;
	struct seen_stack *stack;

	if (bpf_probe_read_user(&from.return_address, sizeof(from.return_address), (void *)regs->sp))
		return;
	known = bpf_map_lookup_elem(&callers, &from);
	if (known)
		kept = *known;
	if (kept >= STACKS_FOR_EACH_CALLER && number & (number - 1))
		return;
	stack = bpf_ringbuf_reserve(&stacks, sizeof(*stack), 0);
	/* The next call from there is as good. */
	if (!stack)
		return;
	fill_registers(stack, regs);
	/* No read goes over the end of a page: behind the stack there may be none. */
	stack->base = regs->sp & ~(__u64)(PAGE_BYTES - 1);
	stack->function = function;
	stack->pid = process_number_of(task);
	stack->tid = number_of(task);
	stack->bytes = 0;
#pragma unroll
	for (int page = 0; page < STACK_PAGES; page++) {
		void *at = (void *)(stack->base + page * PAGE_BYTES);

		if (bpf_probe_read_user(stack->kept + page * PAGE_BYTES, PAGE_BYTES, at))
			break;
		stack->bytes = (page + 1) * PAGE_BYTES;
	}
	bpf_ringbuf_submit(stack, BPF_RB_NO_WAKEUP);
	kept++;
	bpf_map_update_elem(&callers, &from, &kept, BPF_ANY);
}

#endif
