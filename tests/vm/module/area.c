// SPDX-License-Identifier: MIT OR GPL-2.0
/* The AUX area: whole packets go in, unless a knob says otherwise. */
#include "soft_pt.h"

/* No packet starts with it. */
#define NO_PACKET 0x09

/* Output to the area begins; false if it is full, and then perf disables the event. */
bool area_begin(struct unit *u, struct perf_event *event)
{
    struct area *area = perf_aux_output_begin(&u->handle, event);

    if (!area)
        return false;
    u->area = area;
    u->written = 0;
    if (area->snapshot) {
        u->limit = u->wake = ULONG_MAX;
    } else {
        area->at = u->handle.head % area->bytes;
        u->limit = u->handle.size;
        u->wake = u->handle.wakeup > u->handle.head ? u->handle.wakeup - u->handle.head : 1;
    }
    return true;
}

/* What was written is perf's. */
void area_end(struct unit *u)
{
    if (u->area->snapshot) {
        u->handle.head = u->area->at;
        perf_aux_output_end(&u->handle, u->area->bytes);
    } else {
        perf_aux_output_end(&u->handle, u->written);
    }
}

static void put_bytes(struct unit *u, const u8 *from, unsigned int bytes)
{
    struct area *area = u->area;
    unsigned int i;

    for (i = 0; i < bytes; i++) {
        ((u8 *)area->pages[area->at >> PAGE_SHIFT])[area->at & ~PAGE_MASK] = from[i];
        area->at = area->at + 1 == area->bytes ? 0 : area->at + 1;
    }
    area->since_psb += bytes;
    area->to_full += bytes;
    area->to_damage += bytes;
    u->written += bytes;
    u->bytes += bytes;
}

/* Another packet takes its place. */
static void put_damage(struct unit *u, unsigned int bytes)
{
    u8 damage[16];

    memset(damage, NO_PACKET, sizeof(damage));
    put_bytes(u, damage, min_t(unsigned int, bytes, sizeof(damage)));
    truth_lose(u, DAMAGED);
    u->area->to_damage = 0;
    u->area->blind = true;
    u->psb_whole = false;
    atomic64_inc(&counters.damaged);
}

/* Writes a packet; false if it is lost.  In an overflow all are, those of time, too. */
bool area_put(struct unit *u, const u8 *packet, unsigned int bytes)
{
    struct area *area = u->area;

    if (!u->tracing || u->muted || u->losing)
        return false;
    if (full_every && u->enabled && area->to_full >= full_every) {
        area->to_full = 0;
        unit_full(u);
        return false;
    }
    if (u->written + bytes > u->limit) {
        if (cut_packet && u->written < u->limit) {
            put_bytes(u, packet, u->limit - u->written);
            u->shown = true; /* who reads half a packet cannot know whether tracing is off */
        }
        unit_full(u);
        return false;
    }
    if (damage_every && u->enabled && area->to_damage >= damage_every) {
        put_damage(u, bytes);
        return false;
    }
    put_bytes(u, packet, bytes);
    return true;
}

/* Padding as fast as it can be written, for measuring who drains it. */
void area_flood(struct unit *u, unsigned long bytes)
{
    struct area *area = u->area;

    bytes = min(bytes, u->limit - u->written);
    while (bytes) {
        unsigned long chunk = min(bytes, PAGE_SIZE - (area->at & ~PAGE_MASK));

        memset((u8 *)area->pages[area->at >> PAGE_SHIFT] + (area->at & ~PAGE_MASK), 0, chunk);
        area->at = area->at + chunk == area->bytes ? 0 : area->at + chunk;
        u->written += chunk;
        u->bytes += chunk;
        bytes -= chunk;
    }
}
