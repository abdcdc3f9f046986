// SPDX-License-Identifier: MIT OR GPL-2.0
/*
 * The log of what really happened (debugfs `log`): every taken branch, and every way in and out, in order.
 *
 * An event waits until a packet is out that tells of it; if that packet is lost, the event is logged as lost, behind
 * an event that says how.  So the log says exactly what a decoder can know.
 */
#include <linux/debugfs.h>
#include <linux/module.h>
#include <linux/vmalloc.h>

#include "soft_pt.h"

struct counters counters;
static struct event *events;
static atomic64_t logged;
static struct dentry *directory;

static void log_event(const struct event *event)
{
    u64 at = atomic64_inc_return(&logged) - 1;

    if (at < log_entries)
        events[at] = *event;
}

static struct event event_now(struct unit *u, enum kind kind, u8 flags, u64 from, u64 to)
{
    return (struct event){ u->now, from, to, current->pid, smp_processor_id(), kind, flags };
}

static bool is_lost(struct unit *u)
{
    return u->losing || u->muted || (u->area && u->area->blind);
}

/* Something happened at u->now.  Switches need no packet: perf's records tell of them. */
void truth_note(struct unit *u, enum kind kind, u8 flags, u64 from, u64 to)
{
    struct event event = event_now(u, kind, flags | (is_lost(u) ? FLAG_LOST : 0), from, to);

    if (kind == SWITCH_IN || kind == SWITCH_OUT || is_lost(u)) {
        truth_tell(u, u->pendings);
        log_event(&event);
        return;
    }
    if (u->pendings == MAX_PENDING) /* so many direct branches in a row: nobody loses packets right there */
        truth_tell(u, 1);
    u->pending[u->pendings++] = event;
}

/* A packet is out that tells of the first `count` events that wait. */
void truth_tell(struct unit *u, unsigned int count)
{
    unsigned int i;

    for (i = 0; i < count; i++)
        log_event(&u->pending[i]);
    u->pendings -= count;
    u->told -= min(u->told, count);
    memmove(u->pending, u->pending + count, u->pendings * sizeof(*u->pending));
}

/* Packets are lost from here on, and with them what waits.  A loss inside another one is none of its own. */
void truth_lose(struct unit *u, enum kind kind)
{
    struct event event = event_now(u, kind, 0, u->ip, 0);
    unsigned int i;

    if (is_lost(u))
        return;
    if (u->pendings) {
        event.tsc = u->pending[0].tsc;
        event.from = u->pending[0].from;
    }
    log_event(&event);
    for (i = 0; i < u->pendings; i++)
        u->pending[i].flags |= FLAG_LOST;
    truth_tell(u, u->pendings);
}

static ssize_t log_read(struct file *file, char __user *to, size_t bytes, loff_t *at)
{
    u64 count = min_t(u64, atomic64_read(&logged), log_entries);

    return simple_read_from_buffer(to, bytes, at, events, count * sizeof(*events));
}

/* Whatever is written, the log is empty then. */
static ssize_t log_write(struct file *file, const char __user *from, size_t bytes, loff_t *at)
{
    atomic64_set(&logged, 0);
    return bytes;
}

static const struct file_operations log_operations = {
    .owner = THIS_MODULE, .open = simple_open, .read = log_read, .write = log_write, .llseek = default_llseek,
};

/* A line each: name, number. */
static ssize_t stat_read(struct file *file, char __user *to, size_t bytes, loff_t *at)
{
    char text[512];
    int length = scnprintf(text, sizeof(text),
        "starts %lld\nsteps %lld\nbytes %lld\ninterrupts %lld\nstrays %lld\noverflows %lld\nfull %lld\ndamaged %lld\n"
        "unread %lld\ndesyncs %lld\nopen %lld\nlogged %lld\n",
        atomic64_read(&counters.starts), atomic64_read(&counters.steps), atomic64_read(&counters.bytes), atomic64_read(&counters.interrupts),
        atomic64_read(&counters.strays), atomic64_read(&counters.overflows), atomic64_read(&counters.full),
        atomic64_read(&counters.damaged), atomic64_read(&counters.unread), atomic64_read(&counters.desyncs),
        atomic64_read(&counters.open), atomic64_read(&logged));

    return simple_read_from_buffer(to, bytes, at, text, length);
}

static const struct file_operations stat_operations = {
    .owner = THIS_MODULE, .open = simple_open, .read = stat_read,
};

int truth_init(void)
{
    events = vzalloc(max(log_entries, 1ul) * sizeof(*events));
    if (!events)
        return -ENOMEM;
    directory = debugfs_create_dir("soft_pt", NULL);
    debugfs_create_file("log", 0600, directory, NULL, &log_operations);
    debugfs_create_file("stat", 0400, directory, NULL, &stat_operations);
    return 0;
}

void truth_exit(void)
{
    debugfs_remove(directory);
    vfree(events);
}
