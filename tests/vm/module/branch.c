// SPDX-License-Identifier: MIT OR GPL-2.0
/* What kind of branch an instruction is: as much decoding as that needs. */
#include <linux/uaccess.h>

#include "soft_pt.h"

#define MAX_INSTRUCTION 15

/* The instruction's bytes, up to the end of its page if the next one is not there; 0 if it cannot be read. */
static unsigned int read_code(u64 ip, u8 *code)
{
    unsigned int in_page = PAGE_SIZE - (ip & ~PAGE_MASK);

    if (!copy_from_user_nofault(code, (void __user *)ip, MAX_INSTRUCTION))
        return MAX_INSTRUCTION;
    if (in_page < MAX_INSTRUCTION && !copy_from_user_nofault(code, (void __user *)ip, in_page))
        return in_page;
    atomic64_inc(&counters.unread);
    return 0;
}

static bool is_prefix(u8 byte)
{
    switch (byte) {
    case 0x66: case 0x67: case 0xf0: case 0xf2: case 0xf3:
    case 0x26: case 0x2e: case 0x36: case 0x3e: case 0x64: case 0x65:
        return true;
    }
    return !test_thread_flag(TIF_ADDR32) && (byte & 0xf0) == 0x40; /* REX */
}

/* Bytes of ModRM, SIB and displacement, in 32- and 64-bit code. */
static unsigned int modrm_bytes(const u8 *code)
{
    unsigned int mod = code[0] >> 6, rm = code[0] & 7, bytes = 1;

    if (mod == 3)
        return bytes;
    if (rm == 4) {
        bytes++;
        if (mod == 0 && (code[1] & 7) == 5)
            bytes += 4;
    }
    if (mod == 0 && rm == 5)
        bytes += 4;
    return bytes + (mod == 1 ? 1 : mod == 2 ? 4 : 0);
}

/* The branch at `ip` in the current process. */
struct branch branch_at(u64 ip)
{
    u8 code[MAX_INSTRUCTION + 8] = {}; /* a truncated instruction reads as zeros */
    unsigned int have = read_code(ip, code), at = 0;
    u8 opcode, reg;

    while (at < have && is_prefix(code[at]))
        at++;
    if (at >= have)
        return (struct branch){ NO_EVENT };
    opcode = code[at++];
    switch (opcode) {
    case 0x70 ... 0x7f: /* Jcc */
    case 0xe0 ... 0xe3: /* LOOP, JRCXZ */
        return (struct branch){ CONDITIONAL_JUMP, at + 1 };
    case 0x0f:
        if (code[at] >= 0x80 && code[at] <= 0x8f) /* Jcc */
            return (struct branch){ CONDITIONAL_JUMP, at + 5 };
        break;
    case 0xeb:
        return (struct branch){ JUMP, at + 1 };
    case 0xe9:
        return (struct branch){ JUMP, at + 4 };
    case 0xe8:
        return (struct branch){ CALL, at + 4, code[at] | code[at + 1] | code[at + 2] | code[at + 3] };
    case 0xc3:
        return (struct branch){ RETURN, at };
    case 0xc2:
        return (struct branch){ RETURN, at + 2 };
    case 0xff:
        reg = code[at] >> 3 & 7;
        at += modrm_bytes(code + at);
        if (reg == 2)
            return (struct branch){ INDIRECT_CALL, at, true };
        if (reg == 4)
            return (struct branch){ INDIRECT_JUMP, at };
    }
    return (struct branch){ NO_EVENT };
}
