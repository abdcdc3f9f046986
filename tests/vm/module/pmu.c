// SPDX-License-Identifier: MIT OR GPL-2.0
/* The PMU as the perf core calls it. */
#include <linux/hrtimer.h>
#include <linux/module.h>
#include <linux/slab.h>

#include "soft_pt.h"

static struct pmu pmu;

/* A millisecond of flood at a time. */
static DEFINE_PER_CPU(struct hrtimer, floods);

static enum hrtimer_restart on_flood(struct hrtimer *timer)
{
    struct unit *u = this_cpu_ptr(&units);

    if (!u->event || u->event->hw.state == PERF_HES_STOPPED || !flood_kib_per_ms)
        return HRTIMER_NORESTART;
    area_flood(u, flood_kib_per_ms << 10);
    if (u->written >= u->wake || u->written == u->limit) {
        if (u->written == u->limit)
            perf_aux_output_flag(&u->handle, PERF_AUX_FLAG_TRUNCATED);
        area_end(u);
        if (!area_begin(u, u->event)) {
            u->event->hw.state = PERF_HES_STOPPED;
            return HRTIMER_NORESTART;
        }
    }
    hrtimer_forward_now(timer, ms_to_ktime(1));
    return HRTIMER_RESTART;
}

static void start(struct perf_event *event, int flags)
{
    struct unit *u = this_cpu_ptr(&units);
    bool first = !event->hw.config;

    if (!area_begin(u, event)) {
        event->hw.state = PERF_HES_STOPPED;
        return;
    }
    atomic64_inc(&counters.starts);
    event->hw.state = 0;
    event->hw.config = 1;
    if (first)
        event->attach_state |= PERF_ATTACH_ITRACE; /* what perf_event_itrace_started() does */
    perf_event_addr_filters_sync(event);
    u->filters = *(struct filters *)event->hw.addr_filters;
    u->event = event;
    u->config = event->attr.config;
    if (flood_kib_per_ms)
        hrtimer_start(this_cpu_ptr(&floods), ms_to_ktime(1), HRTIMER_MODE_REL_PINNED_HARD);
    if (quiet)
        return;
    unit_start(u, first);
    if (u->tracing)
        hooks_arm(u);
}

static void stop(struct perf_event *event, int flags)
{
    struct unit *u = this_cpu_ptr(&units);

    if (u->event != event)
        return;
    if (u->tracing)
        unit_leave(u, ASYNC);
    if (u->tracing) {
        packet_flush(u);
        hooks_disarm(u);
    }
    if (event->hw.state == PERF_HES_STOPPED)
        return;
    event->hw.state = PERF_HES_STOPPED;
    if (flags & PERF_EF_UPDATE && perf_get_aux(&u->handle) && u->handle.event == event)
        area_end(u);
}

static int add(struct perf_event *event, int flags)
{
    if (this_cpu_ptr(&units)->handle.event)
        return -EBUSY;
    event->hw.state = PERF_HES_STOPPED;
    if (!(flags & PERF_EF_START))
        return 0;
    start(event, 0);
    return event->hw.state == PERF_HES_STOPPED ? -EINVAL : 0;
}

static void del(struct perf_event *event, int flags)
{
    stop(event, PERF_EF_UPDATE);
}

static void nothing_to_read(struct perf_event *event)
{
}

static void destroy(struct perf_event *event)
{
    kfree(event->hw.addr_filters);
    event->hw.addr_filters = NULL;
    atomic64_dec(&counters.open);
}

static bool is_set(unsigned int bits, unsigned int at)
{
    return bits >> at & 1;
}

static bool is_valid(u64 config)
{
    unsigned int threshold = CONFIG_CYC_THRESHOLD(config), psb = CONFIG_PSB_PERIOD(config);

    return !(config & ~CONFIG_VALID) &&
           (!(config & CONFIG_MTC) || is_set(MTC_PERIODS, CONFIG_MTC_PERIOD(config))) &&
           (!threshold || is_set(CYC_THRESHOLDS, threshold)) && (!psb || is_set(PSB_PERIODS, psb)) &&
           (config & CONFIG_PT || !(config & CONFIG_BRANCH));
}

/* The filters of an inherited event are its parent's. */
static int init_event(struct perf_event *event)
{
    const struct filters *inherited = event->parent ? event->parent->hw.addr_filters : NULL;
    struct filters *filters;

    if (event->attr.type != pmu.type)
        return -ENOENT;
    if (!is_valid(event->attr.config))
        return -EINVAL;
    filters = kzalloc(sizeof(*filters), GFP_KERNEL);
    if (!filters)
        return -ENOMEM;
    if (inherited)
        *filters = *inherited;
    event->hw.addr_filters = filters;
    event->destroy = destroy;
    atomic64_inc(&counters.open);
    return 0;
}

static void *setup_area(struct perf_event *event, void **pages, int count, bool overwrite)
{
    struct area *area = kzalloc(sizeof(*area), GFP_KERNEL);

    if (area)
        *area = (struct area){ .pages = pages, .bytes = (unsigned long)count << PAGE_SHIFT, .snapshot = overwrite };
    return area;
}

static void free_area(void *area)
{
    kfree(area);
}

static struct pmu pmu = {
    .module = THIS_MODULE,
    .capabilities = PERF_PMU_CAP_EXCLUSIVE | PERF_PMU_CAP_ITRACE,
    .attr_groups = pmu_groups,
    .task_ctx_nr = perf_sw_context,
    .event_init = init_event,
    .add = add,
    .del = del,
    .start = start,
    .stop = stop,
    .read = nothing_to_read,
    .setup_aux = setup_area,
    .free_aux = free_area,
    .addr_filters_validate = filters_validate,
    .addr_filters_sync = filters_sync,
};

int pmu_init(void)
{
    int cpu;

    for_each_possible_cpu(cpu) {
        hrtimer_init(per_cpu_ptr(&floods, cpu), CLOCK_MONOTONIC, HRTIMER_MODE_REL_PINNED_HARD);
        per_cpu(floods, cpu).function = on_flood;
    }
    pmu.nr_addr_filters = nr_filters;
    return perf_pmu_register(&pmu, "intel_pt", -1);
}

void pmu_exit(void)
{
    int cpu;

    perf_pmu_unregister(&pmu);
    for_each_possible_cpu(cpu)
        hrtimer_cancel(per_cpu_ptr(&floods, cpu));
}
