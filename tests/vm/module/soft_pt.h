/* SPDX-License-Identifier: MIT OR GPL-2.0 */
/*
 * soft_pt: a PMU called intel_pt on machines without Intel PT, for tests in a virtual machine.
 *
 * It runs user code one instruction at a time (EFLAGS.TF) and writes the packets that a processor would have written:
 *
 *   hooks.c    user code was entered, was left, has executed an instruction
 *     unit.c     the trace unit: filters, branches (branch.c), overflows
 *       packets.c  each packet with its time
 *         area.c     perf's AUX area: pages, wake-up, full, damaged
 *       truth.c    what really happened, and whether the packets tell
 *   pmu.c      perf's calls: start, stop, filters (filters.c); sysfs.c says what the PMU can do
 *
 * All of a unit runs on its CPU: in the step trap, with interrupts off, or from perf with interrupts off.
 */
#ifndef SOFT_PT_H
#define SOFT_PT_H

#include <linux/perf_event.h>
#include <linux/user-return-notifier.h>

/* attr.config, as in the sysfs group `format`. */
#define CONFIG_PT BIT_ULL(0)
#define CONFIG_CYC BIT_ULL(1)
#define CONFIG_MTC BIT_ULL(9)
#define CONFIG_TSC BIT_ULL(10)
#define CONFIG_NORETCOMP BIT_ULL(11)
#define CONFIG_BRANCH BIT_ULL(13)
#define CONFIG_MTC_PERIOD(c) ((c) >> 14 & 15)
#define CONFIG_CYC_THRESHOLD(c) ((c) >> 19 & 15)
#define CONFIG_PSB_PERIOD(c) ((c) >> 24 & 15)
#define CONFIG_VALID                                                                                        \
    (CONFIG_PT | CONFIG_CYC | CONFIG_MTC | CONFIG_TSC | CONFIG_NORETCOMP | CONFIG_BRANCH | 15ULL << 14 |    \
     15ULL << 19 | 15ULL << 24)

/* Which values of the three fields there are, a bit each (CPUID 14H). */
#define MTC_PERIODS 0x249u
#define CYC_THRESHOLDS 0x1fffu
#define PSB_PERIODS 0x3fu

#define MAX_FILTERS 4
#define RETURN_DEPTH 64
#define MAX_PENDING 96 /* per-CPU memory of modules is scarce */

struct filter {
    u64 first, last;
    bool stops; /* TraceStop, not a filter */
};

struct filters {
    unsigned int count;
    struct filter of[MAX_FILTERS];
};

/* The kinds and flags of the ground truth files of crates/tracegen (truth::format). */
enum kind {
    NO_EVENT = 0,
    CALL = 1,
    INDIRECT_CALL = 2,
    RETURN = 3,
    JUMP = 4,
    INDIRECT_JUMP = 5,
    CONDITIONAL_JUMP = 6,
    SYSCALL = 7,
    ENTER = 8,
    ASYNC = 9,
    OVERFLOW = 10,
    RESUME = 11,
    FILTER_IN = 12,
    SWITCH_OUT = 13,
    TRUNCATED = 14,
    SWITCH_IN = 15,
    DAMAGED = 16,
};
#define FLAG_FILTER_OUT 0x20
#define FLAG_LOST 0x40

/* An event of the log, 32 bytes. */
struct event {
    u64 tsc, from, to;
    u32 tid;
    u16 cpu;
    u8 kind, flags;
};

/* perf's AUX area, shared by all events that write to one buffer. */
struct area {
    void **pages;
    unsigned long bytes;
    bool snapshot;
    unsigned long at;      /* next byte */
    u64 since_psb;         /* bytes */
    bool blind;            /* who reads this cannot follow until the next PSB */
    u64 to_full, to_damage; /* bytes since the last injected one */
};

/* The trace unit of a CPU. */
struct unit {
    struct perf_output_handle handle;
    struct perf_event *event;
    struct area *area;
    unsigned long written, limit, wake; /* bytes since output began */
    struct user_return_notifier notifier;
    bool notified;
    struct filters filters;
    u64 config;

    u64 now;      /* TSC of what happens now */
    u64 ip;       /* the next instruction */
    bool tracing; /* TraceEn */
    bool in_user; /* ContextEn */
    bool enabled; /* PacketEn: in user code, inside the filters */
    bool stopped; /* a TraceStop range was reached */
    bool stepped; /* this entry into the kernel is a step trap */
    bool muted;   /* the area was full: no packets until user code is entered again */

    u64 last_ip;
    bool whole_ip; /* the next address stands whole */
    bool shown;    /* the packets so far say that tracing is enabled */
    u64 tnt;
    unsigned int bits;
    u64 returns[RETURN_DEPTH];
    unsigned int depth;
    u64 cyc_tsc;   /* time of the last CYC */
    u64 mtc_count; /* number of the last MTC */
    bool psb_whole;

    u64 branches; /* since the last injected overflow */
    u64 losing;   /* branches that the overflow still takes */

    struct event pending[MAX_PENDING]; /* no packet tells of these yet */
    unsigned int pendings, told;       /* told: by the TNT bits that are not sent yet */

    u64 steps, bytes;
};
DECLARE_PER_CPU(struct unit, units);

/* What happens, counted over all CPUs (debugfs `stat`). */
struct counters {
    atomic64_t starts, steps, bytes, interrupts, strays, overflows, full, damaged, unread, desyncs, open;
};
extern struct counters counters;

/* Knobs: module parameters, see module.c. */
extern unsigned int nr_filters, long_tnt, overflow_every, overflow_length, full_every, cut_packet, damage_every;
extern unsigned int quiet, flood_kib_per_ms;
extern unsigned long log_entries;
/* TSC ticks per tick of the crystal clock; the core:bus ratio. */
extern unsigned int art_ratio, bus_ratio;

/* branch.c */
struct branch {
    enum kind kind; /* NO_EVENT: none, or a far transfer */
    unsigned int bytes;
    bool pushes; /* a call that is not one to the next instruction */
};
struct branch branch_at(u64 ip);

/* truth.c */
int truth_init(void);
void truth_exit(void);
void truth_note(struct unit *u, enum kind kind, u8 flags, u64 from, u64 to);
void truth_tell(struct unit *u, unsigned int events);
void truth_lose(struct unit *u, enum kind kind);

/* area.c */
bool area_begin(struct unit *u, struct perf_event *event);
void area_end(struct unit *u);
bool area_put(struct unit *u, const u8 *packet, unsigned int bytes);
void area_flood(struct unit *u, unsigned long bytes);

/* packets.c */
void packet_bit(struct unit *u, bool bit);
void packet_flush(struct unit *u);
void packet_tip(struct unit *u, u64 to);
void packet_pge(struct unit *u, u64 ip);
void packet_pgd(struct unit *u, u64 to);
void packet_fup(struct unit *u, u64 ip);
void packet_ovf(struct unit *u, u64 ip);
void packet_mode(struct unit *u);
void packet_psb(struct unit *u);
void packet_clock(struct unit *u);
void packet_mtcs(struct unit *u);

/* unit.c */
void unit_start(struct unit *u, bool first);
void unit_enter(struct unit *u, u64 ip);
void unit_leave(struct unit *u, enum kind how);
void unit_step(struct unit *u, u64 to);
bool unit_wants_service(const struct unit *u);
void unit_service(struct unit *u);
void unit_full(struct unit *u);
void unit_off(struct unit *u);

/* hooks.c */
int hooks_init(void);
void hooks_exit(void);
void hooks_arm(struct unit *u);
void hooks_disarm(struct unit *u);

/* pmu.c, filters.c, sysfs.c */
int pmu_init(void);
void pmu_exit(void);
int filters_validate(struct list_head *list);
void filters_sync(struct perf_event *event);
bool filters_contain(struct unit *u, u64 ip);
extern const struct attribute_group *pmu_groups[];

#endif
