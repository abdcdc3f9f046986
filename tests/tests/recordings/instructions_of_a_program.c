/*
 * icount: a plugin for QEMU's user-mode emulator that counts the instructions
 * that a program executes, in all threads, and keeps nothing else.
 *
 *   qemu-x86_64 -plugin icount.so prog args...
 *
 * Prints "instructions N" on stderr when the program ends.
 */
#include "qplug.h"

#include <stdint.h>
#include <stdio.h>

EXPORT int qemu_plugin_version = 1;

static uint64_t executed;

static void block_begins(unsigned vcpu, void *instructions)
{
    (void)vcpu;
    __atomic_fetch_add(&executed, (uint64_t)(uintptr_t)instructions, __ATOMIC_RELAXED);
}

static void block_translated(qemu_plugin_id_t id, struct qemu_plugin_tb *block)
{
    (void)id;
    void *instructions = (void *)(uintptr_t)qemu_plugin_tb_n_insns(block);
    qemu_plugin_register_vcpu_tb_exec_cb(block, block_begins, QEMU_PLUGIN_CB_NO_REGS, instructions);
}

static void ended(qemu_plugin_id_t id, void *data)
{
    (void)id;
    (void)data;
    fprintf(stderr, "instructions %" PRIu64 "\n", executed);
}

EXPORT int qemu_plugin_install(qemu_plugin_id_t id, const qemu_info_t *info, int argc, char **argv)
{
    (void)info;
    (void)argc;
    (void)argv;
    qemu_plugin_register_vcpu_tb_trans_cb(id, block_translated);
    qemu_plugin_register_atexit_cb(id, ended, NULL);
    return 0;
}
