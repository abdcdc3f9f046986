// SPDX-License-Identifier: MIT OR GPL-2.0
/* The trace unit of a CPU: what the program does goes in, packets come out. */
#include <asm/msr.h>

#include "soft_pt.h"

static void look_at_clock(struct unit *u)
{
    u->now = max(rdtsc_ordered(), u->now);
}

/* TraceEn 0 to 1.  `first`: the event has never been on. */
void unit_start(struct unit *u, bool first)
{
    look_at_clock(u);
    u->tracing = true;
    u->in_user = u->enabled = u->stepped = u->stopped = u->muted = u->shown = false;
    u->bits = u->tnt = u->depth = u->losing = u->pendings = u->told = 0;
    u->whole_ip = true;
    u->cyc_tsc = u->now;
    truth_note(u, SWITCH_IN, 0, 0, 0);
    if (first)
        packet_psb(u);
    else
        packet_clock(u);
}

/* TraceEn 1 to 0, in the kernel. */
void unit_off(struct unit *u)
{
    look_at_clock(u);
    truth_note(u, SWITCH_OUT, 0, 0, 0);
    u->tracing = u->in_user = u->enabled = false;
    atomic64_add(u->steps, &counters.steps);
    atomic64_add(u->bytes, &counters.bytes);
    u->steps = u->bytes = 0;
}

static void psb_if_due(struct unit *u)
{
    if (u->tracing && !u->losing && u->area->since_psb >= 2048ULL << CONFIG_PSB_PERIOD(u->config))
        packet_psb(u);
}

/* PacketEn 0 to 1, at u->ip. */
static void enable(struct unit *u, enum kind how, u64 from)
{
    psb_if_due(u);
    truth_note(u, how, 0, from, u->ip);
    packet_mode(u);
    packet_pge(u, u->ip);
    u->enabled = u->in_user; /* else the area was full */
}

/* User code is entered at `ip`. */
void unit_enter(struct unit *u, u64 ip)
{
    if (!u->tracing)
        return;
    look_at_clock(u);
    u->ip = ip;
    if (u->muted) {
        u->muted = false;
        packet_clock(u);
    }
    packet_mtcs(u);
    u->in_user = u->tracing && !u->muted;
    if (u->in_user && filters_contain(u, ip) && !u->stopped)
        enable(u, ENTER, 0);
}

static void end_overflow(struct unit *u, u64 ip)
{
    u->losing = 0;
    if (!u->area->blind)
        truth_note(u, RESUME, 0, 0, ip);
    packet_ovf(u, ip);
}

/* User code is left for the kernel: SYSCALL, or ASYNC in front of u->ip. */
void unit_leave(struct unit *u, enum kind how)
{
    if (!u->in_user)
        return;
    look_at_clock(u);
    packet_mtcs(u);
    if (u->enabled) {
        truth_note(u, how, 0, u->ip, 0);
        if (u->losing) {
            end_overflow(u, 0);
        } else {
            if (how == ASYNC)
                packet_fup(u, u->ip);
            packet_pgd(u, 0);
        }
    }
    u->in_user = u->enabled = false;
}

static void begin_overflow(struct unit *u)
{
    truth_lose(u, OVERFLOW);
    u->branches = 0;
    u->losing = overflow_length;
    u->tnt = u->bits = u->depth = 0;
    atomic64_inc(&counters.overflows);
}

static void push_return(struct unit *u, u64 to)
{
    if (u->depth == RETURN_DEPTH)
        memmove(u->returns, u->returns + 1, --u->depth * sizeof(*u->returns));
    u->returns[u->depth++] = to;
}

/* A traced branch. */
static void report(struct unit *u, const struct branch *branch, u64 from, u64 to)
{
    u64 next = from + branch->bytes;

    switch (branch->kind) {
    case CONDITIONAL_JUMP:
        packet_bit(u, to != next);
        break;
    case RETURN:
        if (u->depth && u->returns[--u->depth] == to && !(u->config & CONFIG_NORETCOMP))
            packet_bit(u, true);
        else
            packet_tip(u, to);
        break;
    case INDIRECT_CALL:
    case INDIRECT_JUMP:
        packet_tip(u, to);
        break;
    default: /* direct ones are in the code */
        break;
    }
    if (branch->pushes)
        push_return(u, next);
}

/* An instruction at `from` led to `to`, which is inside the filters or not. */
static void follow(struct unit *u, u64 from, u64 to, bool inside)
{
    struct branch branch = branch_at(from);
    bool is_branch = branch.kind != NO_EVENT;
    bool taken = is_branch && !(branch.kind == CONDITIONAL_JUMP && to == from + branch.bytes);

    if (!is_branch && (to < from || to > from + 15))
        atomic64_inc(&counters.desyncs);
    if (is_branch && overflow_every && !u->losing && ++u->branches >= overflow_every)
        begin_overflow(u);
    if (taken || !inside)
        truth_note(u, is_branch ? branch.kind : CONDITIONAL_JUMP, inside ? 0 : FLAG_FILTER_OUT, from, to);
    packet_mtcs(u);
    if (!u->in_user)
        return; /* the area was full */
    if (u->losing) {
        u->losing -= is_branch;
        if (!u->losing || !inside)
            end_overflow(u, inside ? to : 0);
    } else if (!inside) {
        if (branch.kind == RETURN && u->depth)
            u->depth--;
        packet_pgd(u, to);
    } else {
        report(u, &branch, from, to);
    }
    if (!inside)
        u->enabled = false;
    psb_if_due(u);
}

/* The instruction at u->ip has run, `to` is next. */
void unit_step(struct unit *u, u64 to)
{
    u64 from = u->ip;
    bool inside;

    u->steps++;
    if (!u->in_user) {
        unit_enter(u, to);
        return;
    }
    look_at_clock(u);
    u->ip = to;
    inside = filters_contain(u, to) && !u->stopped;
    if (u->enabled) {
        follow(u, from, to, inside);
    } else {
        packet_mtcs(u);
        if (inside && u->in_user)
            enable(u, FILTER_IN, from);
    }
}

/* The watermark is reached, which on a processor interrupts the program. */
bool unit_wants_service(const struct unit *u)
{
    return u->tracing && u->written >= u->wake;
}

/* What the interrupt does: what was written is perf's. */
void unit_service(struct unit *u)
{
    struct perf_event *event = u->event;

    unit_leave(u, ASYNC);
    if (!u->tracing)
        return;
    if (u->written == u->limit) {
        unit_full(u);
        return;
    }
    area_end(u);
    if (!area_begin(u, event)) {
        event->hw.state = PERF_HES_STOPPED;
        hooks_disarm(u);
    }
}

/* No room for a packet: the interrupt hands over what there is and starts again, if the area has room. */
void unit_full(struct unit *u)
{
    struct perf_event *event = u->event;

    atomic64_inc(&counters.full);
    truth_lose(u, TRUNCATED);
    u->area->blind |= u->shown;
    u->muted = true;
    u->in_user = u->enabled = u->shown = false;
    u->bits = u->tnt = u->depth = u->losing = 0;
    u->whole_ip = true;
    perf_aux_output_flag(&u->handle, PERF_AUX_FLAG_TRUNCATED);
    area_end(u);
    if (!area_begin(u, event)) {
        event->hw.state = PERF_HES_STOPPED;
        hooks_disarm(u);
    }
}
