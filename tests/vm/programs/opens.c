// What the kernel alone takes to open what a recording needs: two events for each thread on one CPU, two buffers.
//
// opens PID    prints microseconds
#define _GNU_SOURCE
#include <dirent.h>
#include <linux/perf_event.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

enum { THREADS_MAX = 1000, RECORDS = 4096 + (512 << 10), TRACE = 8 << 20 };

// The config is that of `intel_pt/branch,pt,tsc/u`.
static struct perf_event_attr trace = {
    .config = 0x2401, .aux_watermark = TRACE / 4,
}, sideband = {
    .type = PERF_TYPE_SOFTWARE, .config = PERF_COUNT_SW_DUMMY,
    .mmap = 1, .mmap2 = 1, .comm = 1, .task = 1, .context_switch = 1,
};

static int check(int result, const char *what)
{
    if (result < 0) {
        perror(what);
        exit(1);
    }
    return result;
}

static int open_event(struct perf_event_attr *attr, int tid)
{
    attr->size = sizeof(*attr);
    attr->disabled = attr->inherit = attr->inherit_thread = attr->exclude_kernel = attr->sample_id_all = 1;
    attr->sample_type = PERF_SAMPLE_TID | PERF_SAMPLE_TIME | PERF_SAMPLE_CPU | PERF_SAMPLE_IDENTIFIER;
    return check(syscall(SYS_perf_event_open, attr, tid, 0, -1, PERF_FLAG_FD_CLOEXEC), "perf_event_open");
}

static void *map(int event, size_t bytes, size_t offset)
{
    void *at = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, event, offset);
    check(at == MAP_FAILED ? -1 : 0, "mmap");
    return at;
}

int main(int argc, char **argv)
{
    static int traces[THREADS_MAX], sidebands[THREADS_MAX];
    struct perf_event_mmap_page *page;
    struct timespec start, end;
    unsigned long long id;
    struct dirent *entry;
    char path[64];
    int count = 0;
    FILE *type = fopen("/sys/bus/event_source/devices/intel_pt/type", "r");
    if (argc < 2 || !type || fscanf(type, "%u", &trace.type) != 1)
        return 2;
    clock_gettime(CLOCK_MONOTONIC, &start);
    snprintf(path, sizeof(path), "/proc/%s/task", argv[1]);
    DIR *tasks = opendir(path);
    while (tasks && (entry = readdir(tasks)) && count < THREADS_MAX) {
        int tid = atoi(entry->d_name);
        if (!tid)
            continue;
        sidebands[count] = open_event(&sideband, tid);
        traces[count] = open_event(&trace, tid);
        if (count) {
            check(ioctl(traces[count], PERF_EVENT_IOC_SET_OUTPUT, traces[0]), "output");
        } else {
            page = map(traces[0], RECORDS, 0);
            page->aux_offset = RECORDS;
            page->aux_size = TRACE;
            map(traces[0], TRACE, RECORDS);
        }
        check(ioctl(sidebands[count], PERF_EVENT_IOC_SET_OUTPUT, traces[0]), "output");
        check(ioctl(sidebands[count], PERF_EVENT_IOC_ID, &id), "id");
        check(ioctl(traces[count++], PERF_EVENT_IOC_ID, &id), "id");
    }
    for (int i = 0; i < count; i++)
        check(ioctl(sidebands[i], PERF_EVENT_IOC_ENABLE, 0), "enable");
    for (int i = 0; i < count; i++)
        check(ioctl(traces[i], PERF_EVENT_IOC_ENABLE, 0), "enable");
    clock_gettime(CLOCK_MONOTONIC, &end);
    printf("%ld\n", (end.tv_sec - start.tv_sec) * 1000000 + (end.tv_nsec - start.tv_nsec) / 1000);
    return 0;
}
