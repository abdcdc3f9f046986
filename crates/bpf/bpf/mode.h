/* SPDX-License-Identifier: Apache-2.0 OR MIT */
/* What hits of probes do, which user space changes while probes are there; and how often each function's were hit. */
#ifndef MODE_H
#define MODE_H

#include "probes.h"
#include <bpf/bpf_helpers.h>

/* enum mode.  Alone in its section, which user space writes as a whole. */
volatile __u32 mode SEC(".data.mode") = MODE_COUNT;

struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, 1); /* set when loaded */
	__type(key, __u32);
	__type(value, struct hits);
} hits SEC(".maps");

/* Of each CPU. */
struct cpu {
	__u64 inside;    /* programs that run: when none does, nothing that user space reads is half written */
	__u64 child_hit; /* when a child's probe was hit last while children were not timed */
};

struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct cpu);
} cpus SEC(".maps");

/* Before the mode is looked at. */
static __always_inline struct cpu *come_in(void)
{
	__u32 only = 0;
	struct cpu *cpu = bpf_map_lookup_elem(&cpus, &only);

	/* One thread may come in while another one that it has preempted is inside. */
	if (cpu)
		__sync_fetch_and_add(&cpu->inside, 1);
	barrier();
	return cpu;
}

static __always_inline void go_out(struct cpu *cpu)
{
	barrier();
	__sync_fetch_and_add(&cpu->inside, -1);
}

/* Calls of the function on this CPU so far, if one begins here; else 0. */
static __always_inline __u64 count_hit(__u32 function, bool is_entry)
{
	struct hits *of = bpf_map_lookup_elem(&hits, &function);

	if (!of)
		return 0;
	if (is_entry)
		return ++of->entries;
	of->others++;
	return 0;
}

#endif
