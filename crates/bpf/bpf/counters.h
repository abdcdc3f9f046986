/* SPDX-License-Identifier: Apache-2.0 OR MIT */
/* What programs count, by the enum of their own header, which comes first and says how many there are: COUNTERS. */
#ifndef COUNTERS_H
#define COUNTERS_H

#include "kernel.h"
#include <bpf/bpf_helpers.h>

struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, COUNTERS);
	__type(key, __u32);
	__type(value, __u64);
} counters SEC(".maps");

static __always_inline void count(__u32 counter)
{
	__u64 *value = bpf_map_lookup_elem(&counters, &counter);

	if (value)
		(*value)++;
}

#endif
