/*
 * bblog: a plugin for QEMU's user-mode emulator that logs, per guest thread,
 * the sequence of executed translation blocks, with system calls and
 * executable mappings.
 *
 *   qemu-x86_64 -plugin bblog.so,dir=OUT prog args...
 *
 * OUT/cmd.txt     process id; then the command line, an argument a line
 * OUT/blocks.bin  a struct block_record per translated block, in id order
 * OUT/maps0.txt   /proc/self/maps when the first block ran
 * OUT/maps.txt    later mappings of files, and of anonymous memory that is executable:
 *                 "tid pos blocks addr len prot flags pgoff path"
 *                 (pos: number of words in that thread's log so far; blocks: translated so far)
 * OUT/t<TID>.log  32-bit words: a block's id, or an escape of six words
 *
 * Only the first process is logged; what it forks runs on in silence.
 */
#define _GNU_SOURCE
#include "qplug.h"

#include <fcntl.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

EXPORT int qemu_plugin_version = 1;

/* Escapes: number:u32, ns:u64, then the first argument or the result:u64; of rt_sigaction the new
 * handler's address (0: none), with the signal's number in the highest byte. */
#define ESCAPE_SYSCALL 0xF0000001u
#define ESCAPE_SYSRET 0xF0000002u

#define BUFFER_WORDS (1u << 18)
/* A buffer is flushed when less than this is left: more than any one callback writes. */
#define BUFFER_RESERVE 64

/* Our descriptors stay out of the low numbers that the guest sees. */
#define FIRST_FD 900

#define PATH_SIZE 4096

enum {
    SYS_GUEST_mmap = 9,
    SYS_GUEST_rt_sigaction = 13,
    SYS_GUEST_exit = 60,
    SYS_GUEST_exit_group = 231,
};

struct block_record {
    uint64_t start, last, end; /* first instruction, last one, behind it */
    uint32_t instructions, last_len;
    uint8_t last_bytes[16];
    uint64_t unused[2];
};
_Static_assert(sizeof(struct block_record) == 64, "the reader expects 64 bytes");

/* One thread's log. */
struct buffer {
    uint32_t *next, *limit, *words;
    uint64_t flushed; /* words in the file */
    int fd;
    uint32_t tid;
    struct buffer *others;
    uint64_t arguments[6]; /* of the system call in progress */
};

static __thread struct buffer *mine __attribute__((tls_model("initial-exec")));
static struct buffer *all;
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static char dir[PATH_SIZE - 96];
static FILE *blocks, *maps;
static uint32_t block_count;
static pid_t logged_pid;
static bool forked; /* we are in a child of the logged process */

static uint64_t now_ns(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
}

static int open_high(const char *name)
{
    char path[PATH_SIZE];
    snprintf(path, sizeof path, "%s/%s", dir, name);
    int fd = open(path, O_CREAT | O_TRUNC | O_WRONLY | O_CLOEXEC, 0644);
    if (fd < 0) {
        perror(path);
        exit(2);
    }
    int high = fcntl(fd, F_DUPFD_CLOEXEC, FIRST_FD);
    if (high < 0)
        return fd;
    close(fd);
    return high;
}

static void flush(struct buffer *b)
{
    const char *from = (const char *)b->words;
    size_t left = (size_t)((const char *)b->next - from);
    b->flushed += left / 4;
    while (left && !forked) {
        ssize_t written = write(b->fd, from, left);
        if (written <= 0) {
            perror("bblog: log is incomplete");
            _exit(2);
        }
        from += written;
        left -= (size_t)written;
    }
    b->next = b->words;
}

static void copy_first_maps(void)
{
    char text[65536];
    int in = open("/proc/self/maps", O_RDONLY | O_CLOEXEC), out = open_high("maps0.txt");
    ssize_t n;
    while ((n = read(in, text, sizeof text)) > 0)
        if (write(out, text, (size_t)n) != n)
            break;
    close(in);
    close(out);
}

static __attribute__((noinline)) struct buffer *new_buffer(void)
{
    char name[32];
    struct buffer *b = calloc(1, sizeof *b);
    uint32_t *words = malloc(BUFFER_WORDS * sizeof *words);
    if (!b || !words) {
        fputs("bblog: no memory\n", stderr);
        exit(2);
    }
    b->tid = (uint32_t)syscall(SYS_gettid);
    b->words = b->next = words;
    b->limit = words + BUFFER_WORDS - BUFFER_RESERVE;
    pthread_mutex_lock(&lock);
    if (!forked) {
        snprintf(name, sizeof name, "t%u.log", b->tid);
        b->fd = open_high(name);
        if (!all)
            copy_first_maps();
    }
    b->others = all;
    all = b;
    pthread_mutex_unlock(&lock);
    mine = b;
    return b;
}

/* A block runs. */
static void on_exec(unsigned vcpu, void *id)
{
    (void)vcpu;
    struct buffer *b = mine;
    if (__builtin_expect(!b, 0))
        b = new_buffer();
    *b->next++ = (uint32_t)(uintptr_t)id;
    if (__builtin_expect(b->next >= b->limit, 0))
        flush(b);
}

/* A block is translated. */
static void on_translate(qemu_plugin_id_t plugin, struct qemu_plugin_tb *tb)
{
    (void)plugin;
    if (forked)
        return;
    size_t n = qemu_plugin_tb_n_insns(tb);
    struct qemu_plugin_insn *last = qemu_plugin_tb_get_insn(tb, n - 1);
    struct block_record r = { 0 };
    r.start = qemu_plugin_tb_vaddr(tb);
    r.last = qemu_plugin_insn_vaddr(last);
    r.last_len = (uint32_t)qemu_plugin_insn_size(last);
    r.end = r.last + r.last_len;
    r.instructions = (uint32_t)n;
    size_t len = r.last_len < sizeof r.last_bytes ? r.last_len : sizeof r.last_bytes;
    memcpy(r.last_bytes, qemu_plugin_insn_data(last), len);
    pthread_mutex_lock(&lock);
    uint32_t id = block_count++;
    fwrite(&r, sizeof r, 1, blocks);
    pthread_mutex_unlock(&lock);
    qemu_plugin_register_vcpu_tb_exec_cb(tb, on_exec, QEMU_PLUGIN_CB_NO_REGS, (void *)(uintptr_t)id);
}

static inline void put_u64(struct buffer *b, uint64_t v)
{
    *b->next++ = (uint32_t)v;
    *b->next++ = (uint32_t)(v >> 32);
}

static void on_syscall(qemu_plugin_id_t plugin, unsigned vcpu, int64_t number, uint64_t a1, uint64_t a2,
                       uint64_t a3, uint64_t a4, uint64_t a5, uint64_t a6, uint64_t a7, uint64_t a8)
{
    (void)plugin, (void)vcpu, (void)a7, (void)a8;
    struct buffer *b = mine;
    if (!b)
        b = new_buffer();
    *b->next++ = ESCAPE_SYSCALL;
    *b->next++ = (uint32_t)number;
    put_u64(b, now_ns());
    /* Guest addresses are ours. */
    put_u64(b, number == SYS_GUEST_rt_sigaction ? a1 << 56 | (a2 ? *(uint64_t *)a2 : 0) : a1);
    b->arguments[0] = a1, b->arguments[1] = a2, b->arguments[2] = a3;
    b->arguments[3] = a4, b->arguments[4] = a5, b->arguments[5] = a6;
    if (b->next >= b->limit || number == SYS_GUEST_exit || number == SYS_GUEST_exit_group)
        flush(b);
}

/* An mmap has returned: of a file, or of memory that code can be written to. */
static void log_mapping(const struct buffer *b, uint64_t address)
{
    char link[64], path[PATH_SIZE] = "//anon";
    if (!(b->arguments[3] & MAP_ANONYMOUS)) {
        snprintf(link, sizeof link, "/proc/self/fd/%d", (int)b->arguments[4]);
        ssize_t n = readlink(link, path, sizeof path - 1);
        if (n <= 0)
            return;
        path[n] = 0;
    } else if (!(b->arguments[2] & PROT_EXEC)) {
        return;
    }
    pthread_mutex_lock(&lock);
    fprintf(maps, "%u %" PRIu64 " %u %#" PRIx64 " %#" PRIx64 " %d %d %#" PRIx64 " %s\n", b->tid,
            b->flushed + (uint64_t)(b->next - b->words), block_count, address, b->arguments[1],
            (int)b->arguments[2], (int)b->arguments[3], b->arguments[5], path);
    pthread_mutex_unlock(&lock);
}

static void on_sysret(qemu_plugin_id_t plugin, unsigned vcpu, int64_t number, int64_t result)
{
    (void)plugin, (void)vcpu;
    if (result == 0 && !forked && getpid() != logged_pid)
        forked = true; /* fork's other return */
    struct buffer *b = mine;
    if (!b)
        return;
    *b->next++ = ESCAPE_SYSRET;
    *b->next++ = (uint32_t)number;
    put_u64(b, now_ns());
    put_u64(b, (uint64_t)result);
    if (b->next >= b->limit)
        flush(b);
    if (number == SYS_GUEST_mmap && result > 0 && !forked)
        log_mapping(b, (uint64_t)result);
}

static void on_guest_exit(qemu_plugin_id_t plugin, void *data)
{
    (void)plugin, (void)data;
    if (forked || getpid() != logged_pid)
        return;
    for (struct buffer *b = all; b; b = b->others)
        flush(b);
    fflush(blocks);
    fflush(maps);
}

static void write_command(void)
{
    char text[65536];
    FILE *out = fdopen(open_high("cmd.txt"), "w");
    fprintf(out, "%d\n", (int)logged_pid);
    int fd = open("/proc/self/cmdline", O_RDONLY | O_CLOEXEC);
    ssize_t n = read(fd, text, sizeof text);
    close(fd);
    for (ssize_t i = 0; i < n; i++)
        fputc(text[i] ? text[i] : '\n', out);
    fclose(out);
}

EXPORT int qemu_plugin_install(qemu_plugin_id_t id, const qemu_info_t *info, int argc, char **argv)
{
    for (int i = 0; i < argc; i++)
        if (!strncmp(argv[i], "dir=", 4))
            snprintf(dir, sizeof dir, "%s", argv[i] + 4);
    if (!dir[0] || info->system_emulation || strcmp(info->target_name, "x86_64")) {
        fputs("bblog: needs dir=..., and user-mode emulation of x86-64\n", stderr);
        return -1;
    }
    logged_pid = getpid();
    blocks = fdopen(open_high("blocks.bin"), "w");
    maps = fdopen(open_high("maps.txt"), "w");
    write_command();
    qemu_plugin_register_vcpu_tb_trans_cb(id, on_translate);
    qemu_plugin_register_vcpu_syscall_cb(id, on_syscall);
    qemu_plugin_register_vcpu_syscall_ret_cb(id, on_sysret);
    qemu_plugin_register_atexit_cb(id, on_guest_exit, 0);
    return 0;
}
