/* SPDX-License-Identifier: Apache-2.0 OR MIT */
/* What programs and user space agree on.  `src/wire.rs` reads it; a test holds the two against each other. */
#ifndef PROBES_H
#define PROBES_H

#include "scheduler.h"

/*
 * A probe's cookie:
 *   action (bits 0-7) | condition (8-15) | register (16-23) | is a child (24) | bytes from the function's first instruction (25-31) |
 *   function (32-63)
 *   of a region: action | words from a register to the frame's CFA (8-23) | region (32-63)
 */
enum action {
	ACTION_ENTRY = 1,  /* a call has begun: the first instruction of the function, or one that soon follows it */
	ACTION_RETURN = 2, /* a return */
	ACTION_JUMP = 4,   /* a jump that leaves the function */
	ACTION_LOOP = 8,   /* a jump to the function's own first instruction */
	ACTION_REGION = 16, /* of a region: an entry where it begins, a return where it ends, in the same frame */
	ACTION_BY_RBP = 32, /* the frame is known by rbp, else by rsp */
};
#define COOKIE_CONDITION(cookie) ((__u8)((cookie) >> 8))
#define COOKIE_REGISTER(cookie) ((__u8)((cookie) >> 16))
#define COOKIE_IS_CHILD(cookie) ((cookie) >> 24 & 1)
#define COOKIE_BYTES_IN(cookie) ((cookie) >> 25 & 0x7f)
#define COOKIE_FUNCTION(cookie) ((__u32)((cookie) >> 32))
#define COOKIE_FRAME_WORDS(cookie) ((cookie) >> 8 & 0xffff)
enum {
	ALWAYS = 0xff,     /* as condition: there is none; else the low 4 bits of the opcode of Jcc */
	NO_REGISTER = 0xff, /* as register: the target is known; else the jump leaves if the register's value is outside */
};

/* What a hit of a probe does.  Probes stay as they are when this changes. */
enum mode {
	MODE_COUNT = 0, /* it is counted, as in every mode; of some entries the stack is kept */
	MODE_ASKED = 1, /* calls of the functions that were asked for are timed */
	MODE_ALL = 2,   /* ... and those of their children */
	MODE_OFF = 3,   /* nothing is recorded any more */
};

/* Of each function. */
struct function {
	__u64 length;       /* of its first part: what a jump by register must leave */
	__u32 is_rewritten; /* the return addresses of its calls are: uretprobes end them */
	__u32 is_timed;     /* all of its probes are there */
};

/* Hits of a function's probes. */
struct hits {
	__u64 entries;
	__u64 others;
};

/* What a record says of a call: how it ended, but for the last one. */
enum record_kind {
	END_RETURN = 0,
	END_JUMP = 1,   /* a jump out of the function */
	END_UNSEEN = 2, /* its frame was gone when the thread was seen next: unwound, or on a stack that was switched away from */
	END_THREAD = 3, /* its thread ended inside */
	END_NO_ENTRY = 4, /* a return of a call whose entry was not seen */
	END_UNWOUND = 5, /* as END_UNSEEN, and certainly unwound: its stack goes on without it */
	END_ANEW = 6,   /* a region began again in the same frame */
	THREAD_ENDED = 7, /* no call: a thread has ended that was born at `start` */
};

/* Times in ns of CLOCK_MONOTONIC. */
struct call {
	__u64 start;    /* entry */
	__u64 end;      /* END_UNSEEN, END_UNWOUND: when it was certainly still running */
	__u64 blocked;  /* of the time between, asleep */
	__u64 runnable; /* ... woken up, waiting for a CPU */
	__u64 preempted; /* ... not asleep, waiting for a CPU */
	__u64 caller;   /* return address; 0: it could not be read */
	__u64 entry;    /* address of the function */
	__u64 number;   /* of the entry, in its thread */
	__u64 parent;   /* of a child: the number of the call that called it */
	__u64 lost_from; /* of calls of this thread whose records had no room since the one before: first entry, last end */
	__u64 lost_to;
	__u64 lost;     /* how many */
	__u32 function; /* as in the cookie */
	__u32 pid;
	__u32 tid;
	__u32 cpu;      /* at entry */
	__u32 probes;   /* that were hit inside */
	__u16 depth;    /* activations of the same function below */
	__u8 how;       /* enum record_kind */
	__u8 is_child;
};

/* Addresses of stacks that are told. */
#define STACK_LEN 16
#define WAKER_STACK_LEN 32
#define WAKER_USER_STACK_LEN 16

/* Why a thread with open calls was off the CPU, and who woke it. */
struct interval {
	__u64 out;
	__u64 woken;    /* 0: it was preempted, or nobody was seen to wake it */
	__u64 in;
	__u64 outermost; /* number of its outermost open call */
	__u32 tid;
	__s32 syscall;  /* that it was in; NO_SYSCALL: none */
	__u32 waker_pid; /* who was current when it was woken */
	__u32 waker_tid;
	char waker_comm[COMM_LEN];
	__u64 stack[STACK_LEN]; /* of the kernel when it went off, innermost first; 0: no more */
	__u64 waker_stack[WAKER_STACK_LEN];
	__u64 waker_user_stack[WAKER_USER_STACK_LEN]; /* if that was asked for */
	__u8 is_preempted;
	__u8 is_interrupt; /* the waker was probably only interrupted */
	__u8 unused[6];
};

/* Deeper calls are not followed. */
#define MAX_DEPTH 128

struct frame {
	__u64 sp;       /* where the return address is */
	__u64 start;
	__u64 blocked, runnable, preempted; /* the thread's, at entry */
	__u64 caller;
	__u64 number;
	__u64 probes;
	__u64 entry;    /* address of the function */
	__u32 function;
	__u32 cpu;
	__u16 depth;
	__u8 is_child;
	__u8 is_looping; /* it jumps to its own first instruction */
	__u8 on_signal_stack;
	__u8 is_rewritten; /* its return address is: a uretprobe ends it */
	__u8 unused[2];
};

struct thread {
	__u64 blocked, runnable, preempted; /* so far */
	__u64 out;      /* off the CPU since; 0: it is on it */
	__u64 woken;    /* since then; 0: not yet */
	__u64 seen;     /* when a probe was hit last */
	__u64 probes;   /* that were hit so far */
	__u64 numbers;  /* entries so far */
	__u64 born;
	__u64 died;     /* 0: it lives, or its number is another one's now */
	__u64 lost, lost_from, lost_to; /* see struct call */
	__u32 pid;
	__u32 depth;
	__u8 is_preempted; /* it did not sleep when it went off the CPU */
	__u8 is_interrupt; /* see struct interval, as what follows */
	__u8 unused[2];
	__s32 syscall;
	__u32 waker_pid;
	__u32 waker_tid;
	char waker_comm[COMM_LEN];
	__u64 stack[STACK_LEN];
	__u64 waker_stack[WAKER_STACK_LEN];
	__u64 waker_user_stack[WAKER_USER_STACK_LEN];
	__u32 tid;      /* as it is told: numbers.h */
	__u32 unused_too;
	struct frame frames[MAX_DEPTH];
};

/* What is counted. */
enum counter {
	COUNTER_TOO_DEEP = 0,    /* entries deeper than MAX_DEPTH */
	COUNTER_NO_ROOM = 1,     /* entries of threads for which there was no room */
	COUNTER_ODD_RETURN = 2,  /* returns from where no call of that function stands on the stack */
	COUNTER_LOST_INTERVALS = 3, /* struct interval that had no room */
	COUNTER_MISSED_SWITCHES = 4, /* a thread that was off the CPU goes off, or one that was on it comes back */
	COUNTERS = 5,
};

#endif
