/* SPDX-License-Identifier: Apache-2.0 OR MIT */
/* Threads are told by the numbers that they have where we are: in a container, other ones than the kernel's own. */
#ifndef NUMBERS_H
#define NUMBERS_H

#include "kernel.h"
#include <bpf/bpf_core_read.h>
#include <bpf/bpf_helpers.h>

/* Inode of our PID namespace; 0: that of the host, whose numbers are the kernel's.  Set when loaded.  Alone in its section. */
const volatile __u32 pid_namespace SEC(".rodata.namespace") = 0;

/* include/linux/pid_namespace.h, MAX_PID_NS_LEVEL: that many namespaces may be nested. */
#define NESTED_MAX 32

/* 0: it has none there. */
static __noinline __u32 number_of(struct task_struct *task)
{
	struct pid *pid = BPF_CORE_READ(task, thread_pid);
	__u32 level;

	if (!pid_namespace)
		return BPF_CORE_READ(task, pid);
	if (!pid)
		return 0;
	level = BPF_CORE_READ(pid, level);
	for (__u32 i = 0; i < NESTED_MAX; i++) {
		struct upid *number = (void *)&pid->numbers + i * sizeof(struct upid);

		if (i > level)
			break;
		if (BPF_CORE_READ(number, ns, ns.inum) == pid_namespace)
			return BPF_CORE_READ(number, nr);
	}
	return 0;
}

/* Of its process. */
static __always_inline __u32 process_number_of(struct task_struct *task)
{
	return number_of(BPF_CORE_READ(task, group_leader));
}

#endif
