// SPDX-License-Identifier: MIT OR GPL-2.0
/* What the PMU says of itself in /sys/bus/event_source/devices/intel_pt: a Skylake's, with CYC. */
#include <linux/device.h>

#include "soft_pt.h"

PMU_FORMAT_ATTR(pt, "config:0");
PMU_FORMAT_ATTR(cyc, "config:1");
PMU_FORMAT_ATTR(mtc, "config:9");
PMU_FORMAT_ATTR(tsc, "config:10");
PMU_FORMAT_ATTR(noretcomp, "config:11");
PMU_FORMAT_ATTR(branch, "config:13");
PMU_FORMAT_ATTR(mtc_period, "config:14-17");
PMU_FORMAT_ATTR(cyc_thresh, "config:19-22");
PMU_FORMAT_ATTR(psb_period, "config:24-27");

static struct attribute *formats[] = {
    &format_attr_pt.attr, &format_attr_cyc.attr, &format_attr_mtc.attr, &format_attr_tsc.attr,
    &format_attr_noretcomp.attr, &format_attr_branch.attr, &format_attr_mtc_period.attr,
    &format_attr_cyc_thresh.attr, &format_attr_psb_period.attr, NULL,
};
static const struct attribute_group format_group = { .name = "format", .attrs = formats };

struct capability {
    struct device_attribute attribute;
    u32 value;
};

static ssize_t show_capability(struct device *device, struct device_attribute *attribute, char *to)
{
    return sysfs_emit(to, "%x\n", container_of(attribute, struct capability, attribute)->value);
}

static ssize_t show_filters(struct device *device, struct device_attribute *attribute, char *to)
{
    return sysfs_emit(to, "%x\n", nr_filters);
}
static struct device_attribute num_address_ranges = __ATTR(num_address_ranges, 0444, show_filters, NULL);

#define CAPABILITY(name, value) \
    static struct capability capability_##name = { __ATTR(name, 0444, show_capability, NULL), value }
CAPABILITY(max_subleaf, 1);
CAPABILITY(cr3_filtering, 1);
CAPABILITY(psb_cyc, 1);
CAPABILITY(ip_filtering, 1);
CAPABILITY(mtc, 1);
CAPABILITY(ptwrite, 0);
CAPABILITY(power_event_trace, 0);
CAPABILITY(event_trace, 0);
CAPABILITY(tnt_disable, 0);
CAPABILITY(topa_output, 1);
CAPABILITY(topa_multiple_entries, 1);
CAPABILITY(single_range_output, 1);
CAPABILITY(output_subsys, 0);
CAPABILITY(payloads_lip, 0);
CAPABILITY(mtc_periods, MTC_PERIODS);
CAPABILITY(cycle_thresholds, CYC_THRESHOLDS);
CAPABILITY(psb_periods, PSB_PERIODS);

#define OF(name) &capability_##name.attribute.attr
static struct attribute *capabilities[] = {
    OF(max_subleaf), OF(cr3_filtering), OF(psb_cyc), OF(ip_filtering), OF(mtc), OF(ptwrite), OF(power_event_trace),
    OF(event_trace), OF(tnt_disable), OF(topa_output), OF(topa_multiple_entries), OF(single_range_output),
    OF(output_subsys), OF(payloads_lip), OF(mtc_periods), OF(cycle_thresholds), OF(psb_periods),
    &num_address_ranges.attr, NULL,
};
static const struct attribute_group capability_group = { .name = "caps", .attrs = capabilities };

static ssize_t max_nonturbo_ratio_show(struct device *device, struct device_attribute *attribute, char *to)
{
    return sysfs_emit(to, "%u\n", bus_ratio);
}
static DEVICE_ATTR_RO(max_nonturbo_ratio);

static ssize_t tsc_art_ratio_show(struct device *device, struct device_attribute *attribute, char *to)
{
    return sysfs_emit(to, "%u:1\n", art_ratio);
}
static DEVICE_ATTR_RO(tsc_art_ratio);

static struct attribute *clocks[] = { &dev_attr_max_nonturbo_ratio.attr, &dev_attr_tsc_art_ratio.attr, NULL };
static const struct attribute_group clock_group = { .attrs = clocks };

const struct attribute_group *pmu_groups[] = { &capability_group, &format_group, &clock_group, NULL };
