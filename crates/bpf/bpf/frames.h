/* SPDX-License-Identifier: Apache-2.0 OR MIT */
/* The open calls of each thread, and the records of those that have ended. */
#ifndef FRAMES_H
#define FRAMES_H

#include "probes.h"
#include "counters.h"
#include "numbers.h"

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
	call->tid = thread->tid;
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
__noinline int emit(struct thread *thread, struct frame *frame, __u64 end, __u8 how)
{
	struct call *call;

	if (!thread || !frame)
		return 0;
	call = bpf_ringbuf_reserve(&calls, sizeof(*call), 0);
	if (!call) {
		if (how == THREAD_ENDED)
			return 1;
		if (!thread->lost || frame->start < thread->lost_from)
			thread->lost_from = frame->start;
		thread->lost_to = end;
		thread->lost++;
		return 0;
	}
	fill(call, thread, frame);
	call->end = end;
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
__noinline int drop_dead(struct thread *thread, __u64 sp, bool on_signal_stack, bool is_reused)
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
		emit(thread, frame, thread->seen, frame->is_rewritten ? END_UNSEEN : how);
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

#endif
