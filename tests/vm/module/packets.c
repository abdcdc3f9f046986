// SPDX-License-Identifier: MIT OR GPL-2.0
/* Intel PT packets (SDM volume 3, "Trace Packets and Data Types"), each with the time in front that belongs to it. */
#include <asm/div64.h>

#include "soft_pt.h"

#define TIP 0x0d
#define TIP_PGE 0x11
#define TIP_PGD 0x01
#define FUP 0x1d

#define SHORT_TNT 6
#define LONG_TNT 47

/* An MTC has eight bits of its count: behind a longer silence a TSC says more. */
#define MAX_SILENT_MTCS 8

/* Cycles since the last CYC: a core cycle is a TSC tick here. */
static void put_cyc(struct unit *u, u64 at)
{
    unsigned int threshold = CONFIG_CYC_THRESHOLD(u->config), bytes = 0;
    u64 cycles = at - u->cyc_tsc;
    u8 packet[10];

    if (!(u->config & CONFIG_CYC) || cycles < (threshold ? 1ULL << (threshold - 1) : 1))
        return;
    u->cyc_tsc = at;
    packet[bytes++] = 3 | (cycles & 31) << 3 | (cycles > 31) << 2;
    for (cycles >>= 5; cycles; cycles >>= 7)
        packet[bytes++] = (cycles & 127) << 1 | (cycles > 127);
    area_put(u, packet, bytes);
}

/* Sends the TNT bits. */
void packet_flush(struct unit *u)
{
    u64 value = 1ULL << u->bits | u->tnt;
    unsigned int bytes = 1, i;
    u8 packet[8];

    if (!u->bits)
        return;
    packet[0] = value << 1;
    if (u->bits > SHORT_TNT) {
        packet[0] = 0x02;
        packet[1] = 0xa3;
        for (i = 0; i < 6; i++)
            packet[2 + i] = value >> 8 * i;
        bytes = 8;
    }
    u->tnt = u->bits = 0;
    if (area_put(u, packet, bytes))
        truth_tell(u, u->told);
}

/* The outcome of a conditional branch, or a compressed return. */
void packet_bit(struct unit *u, bool bit)
{
    if (!u->bits)
        put_cyc(u, u->now); /* the time of a TNT is that of its first branch */
    u->tnt = u->tnt << 1 | bit;
    u->bits++;
    u->told = u->pendings;
    if (u->bits == (long_tnt ? LONG_TNT : SHORT_TNT))
        packet_flush(u);
}

/* A packet with an address, compressed against the one before. */
static bool put_address(struct unit *u, u8 opcode, u64 ip)
{
    unsigned int code = 3, bytes = 6, i;
    u8 packet[7];

    if (!u->whole_ip && (ip ^ u->last_ip) >> 16 == 0)
        code = 1, bytes = 2;
    else if (!u->whole_ip && (ip ^ u->last_ip) >> 32 == 0)
        code = 2, bytes = 4;
    packet[0] = opcode | code << 5;
    for (i = 0; i < bytes; i++)
        packet[1 + i] = ip >> 8 * i;
    u->last_ip = ip;
    u->whole_ip = false;
    return area_put(u, packet, 1 + bytes);
}

/* What stands in front of a packet about the flow. */
static void flush_with_time(struct unit *u)
{
    packet_flush(u);
    put_cyc(u, u->now);
}

/* The target of an indirect branch or an uncompressed return. */
void packet_tip(struct unit *u, u64 to)
{
    flush_with_time(u);
    if (put_address(u, TIP, to))
        truth_tell(u, u->pendings);
}

/* Tracing is enabled, at `ip`. */
void packet_pge(struct unit *u, u64 ip)
{
    flush_with_time(u);
    if (put_address(u, TIP_PGE, ip)) {
        truth_tell(u, u->pendings);
        u->shown = true;
    }
}

/* Tracing is disabled by a branch to `to`; 0: into the kernel, which has no address. */
void packet_pgd(struct unit *u, u64 to)
{
    static const u8 without_address = TIP_PGD;

    flush_with_time(u);
    if (to ? put_address(u, TIP_PGD, to) : area_put(u, &without_address, 1)) {
        truth_tell(u, u->pendings);
        u->shown = false;
    }
}

/* Where something asynchronous happened; TIP.PGD follows. */
void packet_fup(struct unit *u, u64 ip)
{
    flush_with_time(u);
    put_address(u, FUP, ip);
}

/* Packets were lost, and are whole from here on.  `ip` is where execution goes on, 0 if not in traced code. */
void packet_ovf(struct unit *u, u64 ip)
{
    static const u8 packet[] = { 0x02, 0xf3 };

    u->whole_ip = true;
    u->shown = false;
    u->cyc_tsc = u->now;
    area_put(u, packet, sizeof(packet));
    packet_clock(u);
    if (ip && put_address(u, FUP, ip))
        u->shown = true;
    truth_tell(u, u->pendings);
}

/* MODE.Exec: 64- or 32-bit code. */
void packet_mode(struct unit *u)
{
    u8 packet[] = { 0x99, test_thread_flag(TIF_ADDR32) ? 2 : 1 };

    packet_flush(u);
    area_put(u, packet, sizeof(packet));
}

/* TSC, TMA, CBR: the time without anything before it. */
void packet_clock(struct unit *u)
{
    u64 ticks = u->now, art = u->now;
    u32 fast = do_div(art, art_ratio);
    u8 tsc[] = { 0x19, ticks, ticks >> 8, ticks >> 16, ticks >> 24, ticks >> 32, ticks >> 40, ticks >> 48 };
    u8 tma[] = { 0x02, 0x73, art, art >> 8, 0, fast, fast >> 8 & 1 };
    u8 cbr[] = { 0x02, 0x03, bus_ratio, 0 };

    if (u->config & CONFIG_TSC)
        area_put(u, tsc, sizeof(tsc));
    if (u->config & CONFIG_TSC && u->config & CONFIG_MTC)
        area_put(u, tma, sizeof(tma));
    area_put(u, cbr, sizeof(cbr));
    u->mtc_count = art >> CONFIG_MTC_PERIOD(u->config);
}

/* The MTCs that have come due since the last one, each at its own time. */
void packet_mtcs(struct unit *u)
{
    u64 count = u->now;

    if (!(u->config & CONFIG_MTC))
        return;
    do_div(count, art_ratio);
    count >>= CONFIG_MTC_PERIOD(u->config);
    if (count == u->mtc_count)
        return;
    packet_flush(u);
    if (count - u->mtc_count > MAX_SILENT_MTCS) {
        put_cyc(u, u->now);
        packet_clock(u);
        return;
    }
    while (u->mtc_count < count) {
        u8 packet[] = { 0x59, ++u->mtc_count };

        put_cyc(u, (u->mtc_count << CONFIG_MTC_PERIOD(u->config)) * art_ratio);
        area_put(u, packet, sizeof(packet));
    }
}

/* PSB+: decoding can begin here. */
void packet_psb(struct unit *u)
{
    static const u8 psb[] = { 2, 0x82, 2, 0x82, 2, 0x82, 2, 0x82, 2, 0x82, 2, 0x82, 2, 0x82, 2, 0x82 };
    static const u8 mode_tsx[] = { 0x99, 0x20 }, psbend[] = { 0x02, 0x23 };

    flush_with_time(u);
    u->area->since_psb = 0;
    u->psb_whole = true;
    u->psb_whole &= area_put(u, psb, sizeof(psb));
    packet_clock(u);
    u->last_ip = 0;
    u->whole_ip = true;
    u->depth = 0;
    packet_mode(u);
    area_put(u, mode_tsx, sizeof(mode_tsx));
    if (u->enabled && put_address(u, FUP, u->ip)) {
        truth_tell(u, u->pendings);
        u->shown = true;
    }
    u->psb_whole &= area_put(u, psbend, sizeof(psbend));
    if (u->psb_whole && u->area->blind) {
        u->area->blind = false;
        u->shown = u->enabled;
        if (u->enabled) {
            truth_note(u, RESUME, 0, 0, u->ip);
            truth_tell(u, u->pendings);
        }
    }
}
