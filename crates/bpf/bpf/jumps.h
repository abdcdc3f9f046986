/* SPDX-License-Identifier: Apache-2.0 OR MIT */
/* Whether a jump is taken, and where to. */
#ifndef JUMPS_H
#define JUMPS_H

#include "kernel.h"
#include <bpf/bpf_helpers.h>

/* SDM volume 1, appendix B: a condition is three bits of which flags, and one that negates. */
static __always_inline bool holds(__u8 condition, __u64 flags)
{
	bool carry = flags & 1, parity = flags >> 2 & 1, zero = flags >> 6 & 1, sign = flags >> 7 & 1;
	bool overflow = flags >> 11 & 1, is = 1;

	switch (condition >> 1) {
	case 0: is = overflow; break;
	case 1: is = carry; break;
	case 2: is = zero; break;
	case 3: is = carry | zero; break;
	case 4: is = sign; break;
	case 5: is = parity; break;
	case 6: is = sign ^ overflow; break;
	case 7: is = zero | (sign ^ overflow); break;
	default: return 1; /* ALWAYS */
	}
	return is ^ (condition & 1);
}

/* Numbered as in instructions. */
static __always_inline __u64 register_value(struct pt_regs *regs, __u8 number)
{
	__u64 value = 0;

	/* The barriers keep the loads apart: at an address that is worked out the verifier allows none. */
	switch (number) {
	case 0: value = regs->ax; barrier_var(value); break;
	case 1: value = regs->cx; barrier_var(value); break;
	case 2: value = regs->dx; barrier_var(value); break;
	case 3: value = regs->bx; barrier_var(value); break;
	case 5: value = regs->bp; barrier_var(value); break;
	case 6: value = regs->si; barrier_var(value); break;
	case 7: value = regs->di; barrier_var(value); break;
	case 8: value = regs->r8; barrier_var(value); break;
	case 9: value = regs->r9; barrier_var(value); break;
	case 10: value = regs->r10; barrier_var(value); break;
	case 11: value = regs->r11; barrier_var(value); break;
	case 12: value = regs->r12; barrier_var(value); break;
	case 13: value = regs->r13; barrier_var(value); break;
	case 14: value = regs->r14; barrier_var(value); break;
	case 15: value = regs->r15; barrier_var(value); break;
	}
	return value;
}

#endif
