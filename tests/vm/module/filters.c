// SPDX-License-Identifier: MIT OR GPL-2.0
/* IP filters: perf gives ranges of files, and where they are mapped; the unit asks about addresses. */
#include "soft_pt.h"

/* PMU callback: as the driver for Intel PT refuses them. */
int filters_validate(struct list_head *list)
{
    struct perf_addr_filter *filter;
    unsigned int count = 0;

    list_for_each_entry(filter, list, entry) {
        if (!filter->size || filter->action == PERF_ADDR_FILTER_ACTION_START)
            return -EOPNOTSUPP;
        if (!filter->path.dentry && (long)filter->offset >= 0)
            return -EINVAL;
        if (++count > nr_filters)
            return -EOPNOTSUPP;
    }
    return 0;
}

/* PMU callback: a filter whose file is not mapped has no addresses. */
void filters_sync(struct perf_event *event)
{
    struct perf_addr_filters_head *head = perf_event_addr_filters(event);
    const struct perf_addr_filter_range *range = event->addr_filter_ranges;
    struct filters *filters = event->hw.addr_filters;
    struct perf_addr_filter *filter;
    unsigned int count = 0;

    list_for_each_entry(filter, &head->list, entry) {
        if (count == MAX_FILTERS)
            break;
        filters->of[count++] = (struct filter){
            .first = range->start,
            .last = range->start ? range->start + range->size - 1 : 0,
            .stops = filter->action == PERF_ADDR_FILTER_ACTION_STOP,
        };
        range++;
    }
    filters->count = count;
}

/* Code at `ip` is traced.  A stop range stops the unit. */
bool filters_contain(struct unit *u, u64 ip)
{
    bool any = false, inside = false;
    unsigned int i;

    for (i = 0; i < u->filters.count; i++) {
        const struct filter *filter = &u->filters.of[i];
        bool in = ip >= filter->first && ip <= filter->last;

        if (filter->stops) {
            u->stopped |= in;
        } else {
            any = true;
            inside |= in;
        }
    }
    return inside || !any;
}
