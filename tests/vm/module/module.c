// SPDX-License-Identifier: MIT OR GPL-2.0
/* Parameters, begin and end. */
#define pr_fmt(text) "soft_pt: " text
#include <asm/tsc.h>
#include <linux/module.h>

#include "soft_pt.h"

#define KNOB(type, name, value, mode, text)                                                                  \
    type name = value;                                                                                       \
    module_param(name, type, mode);                                                                          \
    MODULE_PARM_DESC(name, text)
typedef unsigned int uint;

/* What kind of machine it is. */
KNOB(uint, nr_filters, 2, 0444, "address ranges of the PMU");
KNOB(ulong, log_entries, 0, 0444, "events that the log has room for (debugfs soft_pt/log)");
/* How it behaves, to be changed while nothing is traced. */
KNOB(uint, long_tnt, 0, 0644, "TNT packets of 47 bits");
KNOB(uint, quiet, 0, 0644, "trace nothing: only what recording itself costs is left");
KNOB(uint, flood_kib_per_ms, 0, 0644, "with quiet: so much padding into the AUX area while a thread runs");
/* Faults. */
KNOB(uint, overflow_every, 0, 0644, "lose packets after so many branches (0: never)");
KNOB(uint, overflow_length, 20, 0644, "so many branches long");
KNOB(uint, full_every, 0, 0644, "take the AUX area for full after so many bytes, when code is traced (0: never)");
KNOB(uint, cut_packet, 1, 0644, "where the area really is full, write the part of the packet that fits");
KNOB(uint, damage_every, 0, 0644, "overwrite a packet after so many bytes, when code is traced (0: never)");

unsigned int art_ratio, bus_ratio;

/* Of the made-up crystal clock and bus. */
#define CRYSTAL_KHZ 24000
#define BUS_KHZ 100000

static int __init soft_pt_init(void)
{
    int error;

    art_ratio = max(1u, tsc_khz / CRYSTAL_KHZ);
    bus_ratio = DIV_ROUND_CLOSEST(tsc_khz, BUS_KHZ);
    nr_filters = min_t(uint, nr_filters, MAX_FILTERS);
    error = truth_init();
    if (error)
        return error;
    error = pmu_init();
    if (error)
        goto no_pmu;
    error = hooks_init();
    if (error)
        goto no_hooks;
    pr_info("intel_pt on a TSC of %u kHz, TSC:crystal %u:1, core:bus %u\n", tsc_khz, art_ratio, bus_ratio);
    return 0;

no_hooks:
    pmu_exit();
no_pmu:
    truth_exit();
    return error;
}

static void __exit soft_pt_exit(void)
{
    pmu_exit();
    hooks_exit();
    truth_exit();
}

module_init(soft_pt_init);
module_exit(soft_pt_exit);
MODULE_LICENSE("Dual MIT/GPL");
MODULE_DESCRIPTION("a software stand-in for the PMU of Intel PT, for tests");
