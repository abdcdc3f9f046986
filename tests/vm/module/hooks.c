// SPDX-License-Identifier: MIT OR GPL-2.0
/*
 * How the kernel tells us of user code:
 *
 *   every return to user code      user-return notifier: the unit is on, and TF is set
 *   each instruction               step trap, DIE_DEBUG
 *   a system call, a page fault    tracepoints
 *   another thread                 tracepoint sched_switch, in front of perf's own hook
 *
 * An interrupt is noticed when it returns, or when it switches.
 *
 * A uprobe's trap must not find TF set: the kernel takes that for a debugger's, and sends SIGTRAP for it.
 */
#include <linux/kdebug.h>
#include <linux/ptrace.h>
#include <linux/sched/task_stack.h>
#include <linux/tracepoint.h>
#include <linux/uprobes.h>
#include <asm/debugreg.h>

#include "soft_pt.h"

DEFINE_PER_CPU(struct unit, units);

static void on_user_return(struct user_return_notifier *notifier)
{
    struct unit *u = container_of(notifier, struct unit, notifier);
    struct pt_regs *regs = current_pt_regs();

    if (!u->tracing)
        return;
    if (!u->in_user) {
        unit_enter(u, regs->ip);
    } else if (!u->stepped || regs->ip != u->ip) { /* an interrupt, or a signal behind a step */
        if (!u->stepped)
            atomic64_inc(&counters.interrupts);
        unit_leave(u, ASYNC);
        unit_enter(u, regs->ip);
    }
    u->stepped = false;
    if (unit_wants_service(u)) {
        unit_service(u);
        unit_enter(u, regs->ip);
    }
    if (u->tracing)
        regs->flags |= X86_EFLAGS_TF;
}

static void leave(enum kind how)
{
    unsigned long flags;
    struct unit *u;

    local_irq_save(flags);
    u = this_cpu_ptr(&units);
    if (u->tracing)
        unit_leave(u, how);
    local_irq_restore(flags);
}

static void on_sys_enter(void *data, struct pt_regs *regs, long number)
{
    leave(SYSCALL);
}

static void on_page_fault(void *data, unsigned long address, struct pt_regs *regs, unsigned long error)
{
    if (user_mode(regs))
        leave(ASYNC);
}

/* A processor left user code when it entered the kernel: before the record of the switch. */
static void on_sched_switch(void *data, bool preempt, struct task_struct *from, struct task_struct *to, unsigned int state)
{
    leave(ASYNC);
}

/* The kernel has an instruction run elsewhere that a uprobe has replaced. */
static bool is_step_of_uprobe(void)
{
    return current->utask && current->utask->state == UTASK_SSTEP;
}

static int on_debug_trap(struct notifier_block *block, unsigned long what, void *data)
{
    struct die_args *args = data;
    unsigned long *dr6 = (unsigned long *)args->err;
    struct unit *u = this_cpu_ptr(&units);

    if (what == DIE_INT3 && user_mode(args->regs) && u->tracing)
        args->regs->flags &= ~X86_EFLAGS_TF;
    if (what != DIE_DEBUG || !user_mode(args->regs) || !(*dr6 & DR_STEP))
        return NOTIFY_DONE;
    if (test_thread_flag(TIF_SINGLESTEP))
        return NOTIFY_DONE; /* a debugger's */
    if (is_step_of_uprobe()) {
        if (u->tracing)
            unit_step(u, args->regs->ip);
        return NOTIFY_DONE;
    }
    if (u->tracing) {
        u->stepped = true;
        unit_step(u, args->regs->ip);
        if (unit_wants_service(u))
            unit_service(u);
    } else { /* TF was saved while it was traced: by a signal, by fork */
        args->regs->flags &= ~X86_EFLAGS_TF;
        atomic64_inc(&counters.strays);
    }
    *dr6 &= ~DR_STEP;
    current->thread.virtual_dr6 &= ~DR_STEP;
    return *dr6 & DR_TRAP_BITS ? NOTIFY_DONE : NOTIFY_STOP;
}

static struct notifier_block debug_trap = { .notifier_call = on_debug_trap, .priority = INT_MAX };

/* The unit sees user code from the next return on. */
void hooks_arm(struct unit *u)
{
    if (u->notified)
        return;
    u->notifier.on_user_return = on_user_return;
    user_return_notifier_register(&u->notifier);
    u->notified = true;
}

/* The unit is off. */
void hooks_disarm(struct unit *u)
{
    unit_off(u);
    if (u->notified)
        user_return_notifier_unregister(&u->notifier);
    u->notified = false;
    /* Without TF a thread that is preempted in a uprobe's step runs on behind the copy of the instruction. */
    if (current->mm && !(current->flags & PF_KTHREAD) && !test_thread_flag(TIF_SINGLESTEP) &&
        !is_step_of_uprobe())
        task_pt_regs(current)->flags &= ~X86_EFLAGS_TF;
}

static struct probe {
    const char *name;
    void *function;
    struct tracepoint *at;
    bool registered;
} probes[] = {
    { "sys_enter", on_sys_enter },
    { "page_fault_user", on_page_fault },
    { "sched_switch", on_sched_switch },
};

static void find_probe(struct tracepoint *tracepoint, void *data)
{
    unsigned int i;

    for (i = 0; i < ARRAY_SIZE(probes); i++)
        if (!strcmp(tracepoint->name, probes[i].name))
            probes[i].at = tracepoint;
}

int hooks_init(void)
{
    unsigned int i;
    int error;

    register_die_notifier(&debug_trap);
    for_each_kernel_tracepoint(find_probe, NULL);
    for (i = 0; i < ARRAY_SIZE(probes); i++) {
        error = probes[i].at ? tracepoint_probe_register(probes[i].at, probes[i].function, NULL) : -ENOENT;
        if (error) {
            hooks_exit();
            return error;
        }
        probes[i].registered = true;
    }
    return 0;
}

void hooks_exit(void)
{
    unsigned int i;

    for (i = 0; i < ARRAY_SIZE(probes); i++)
        if (probes[i].registered)
            tracepoint_probe_unregister(probes[i].at, probes[i].function, NULL);
    tracepoint_synchronize_unregister();
    unregister_die_notifier(&debug_trap);
}
