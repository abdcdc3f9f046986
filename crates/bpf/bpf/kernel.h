/* SPDX-License-Identifier: Apache-2.0 OR MIT */
/*
 * What our programs need of the kernel, declared by hand: a whole vmlinux.h has megabytes.  Fields of kernel structures are
 * found by name when the programs are loaded (CO-RE), so that their order and the fields left out do not matter.
 */
#ifndef KERNEL_H
#define KERNEL_H

typedef unsigned char __u8;
typedef unsigned short __u16;
typedef unsigned int __u32;
typedef unsigned long long __u64;
typedef signed int __s32;
typedef signed long long __s64;
typedef __u16 __be16;
typedef __u32 __be32;
typedef __u32 __wsum;
typedef __u8 bool;

/* include/uapi/linux/bpf.h */
enum {
	BPF_MAP_TYPE_HASH = 1,
	BPF_MAP_TYPE_ARRAY = 2,
	BPF_MAP_TYPE_PERCPU_ARRAY = 6,
	BPF_MAP_TYPE_LRU_HASH = 9,
	BPF_MAP_TYPE_RINGBUF = 27,
};
enum { BPF_ANY = 0, BPF_NOEXIST = 1 };
enum { BPF_RB_NO_WAKEUP = 1 };
enum { BPF_F_USER_STACK = 1 << 8 };

/* arch/x86/include/asm/ptrace.h: what a uprobe's program is given, and of a fixed layout. */
struct pt_regs {
	__u64 r15, r14, r13, r12, bp, bx, r11, r10, r9, r8, ax, cx, dx, si, di;
	__u64 orig_ax, ip, cs, flags, sp, ss;
};

#pragma clang attribute push(__attribute__((preserve_access_index)), apply_to = record)

struct xol_area {
	unsigned long vaddr;
};

struct uprobes_state {
	struct xol_area *xol_area;
};

struct mm_struct {
	struct uprobes_state uprobes_state;
};

struct ns_common {
	unsigned int inum;
};

struct pid_namespace {
	struct ns_common ns;
};

struct upid {
	int nr;
	struct pid_namespace *ns;
};

struct pid {
	unsigned int level;
	struct upid numbers[1]; /* one for each level */
};

struct task_struct {
	struct pid *thread_pid;
	struct task_struct *group_leader;
	struct mm_struct *mm;
	int pid;
	int tgid;
	__u64 start_time;
	unsigned long sas_ss_sp;
	unsigned long sas_ss_size;
	unsigned int __state;
	unsigned int flags;
	int prio;
	int wake_cpu;
	char comm[16];
};

/* Before Linux 5.14. */
struct task_struct___before_5_14 {
	long state;
};

#pragma clang attribute pop

#endif
