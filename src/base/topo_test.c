#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <ftw.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/topo.h"

/// A made-up machine below a temporary directory: DIR/proc, DIR/sys, DIR/cgroup.
struct fake {
    char dir[64];
    char proc[80], sys[80], cgroup[80];
    struct qn_topo_roots roots;
};

__attribute__((format(printf, 3, 4))) static void put(const struct fake *f, const char *path,
                                                      const char *fmt, ...)
{
    char full[512];
    snprintf(full, sizeof full, "%s/%s", f->dir, path);
    for (char *p = full + 1; (p = strchr(p, '/')) != NULL; p++) {
        *p = '\0';
        mkdir(full, 0700);
        *p = '/';
    }
    FILE *out = fopen(full, "w");
    assert_non_null(out);
    va_list ap;
    va_start(ap, fmt);
    vfprintf(out, fmt, ap);
    va_end(ap);
    fclose(out);
}

// n CPUs; thread pairs (i, i + n / 2) with smt; the mask as the kernel prints it.
static void make(struct fake *f, unsigned n, bool smt, const char *mask)
{
    memset(f, 0, sizeof *f);
    snprintf(f->dir, sizeof f->dir, "/tmp/qn_topo_XXXXXX");
    assert_non_null(mkdtemp(f->dir));
    snprintf(f->proc, sizeof f->proc, "%s/proc", f->dir);
    snprintf(f->sys, sizeof f->sys, "%s/sys", f->dir);
    snprintf(f->cgroup, sizeof f->cgroup, "%s/cgroup", f->dir);
    f->roots = (struct qn_topo_roots){.proc = f->proc, .cgroup = f->cgroup, .sys = f->sys};
    put(f, "proc/self/status", "Name:\tquern\nCpus_allowed:\tff\nCpus_allowed_list:\t%s\n", mask);
    put(f, "proc/self/cgroup", "0::/\n");
    put(f, "proc/meminfo",
        "MemTotal:       16000000 kB\nMemFree: 1 kB\nMemAvailable: 8000000 kB\n");
    put(f, "sys/devices/system/cpu/online", "0-%u\n", n - 1);
    put(f, "sys/devices/system/cpu/possible", "0-%u\n", n - 1);
    for (unsigned i = 0; i < n; i++) {
        unsigned half = n / 2;
        unsigned long threads = smt ? 1ul << (i % half) | 1ul << (i % half + half) : 1ul << i;
        char base[80], path[160];
        snprintf(base, sizeof base, "sys/devices/system/cpu/cpu%u", i);
        const struct {
            const char *name;
            unsigned long value;
        } masks[] = {{"thread_siblings", threads},
                     {"core_cpus", threads},
                     {"core_siblings", (1ul << n) - 1},
                     {"package_cpus", (1ul << n) - 1}};
        for (size_t k = 0; k < sizeof masks / sizeof masks[0]; k++) {
            snprintf(path, sizeof path, "%s/topology/%s", base, masks[k].name);
            put(f, path, "%08lx\n", masks[k].value);
        }
        snprintf(path, sizeof path, "%s/topology/core_id", base);
        put(f, path, "%u\n", smt ? i % half : i);
        snprintf(path, sizeof path, "%s/topology/physical_package_id", base);
        put(f, path, "0\n");
    }
}

static int remove_entry(const char *path, const struct stat *st, int kind, struct FTW *ftw)
{
    (void)st;
    (void)kind;
    (void)ftw;
    return remove(path);
}

static void drop(const struct fake *f)
{
    nftw(f->dir, remove_entry, 16, FTW_DEPTH | FTW_PHYS);
}

static void check_threads(const struct fake *f, size_t expected)
{
    struct qn_topo t;
    qn_topo_read(&t, &f->roots);
    assert_int_equal(t.n_default_threads, expected);
}

static void test_CPU_01_threads_follow_mask_and_quota(void **state)
{
    (void)state;
    struct fake f;
    make(&f, 8, false, "0-7");
    put(&f, "cgroup/cpu.max", "400000 100000\n");
    check_threads(&f, 4);
    put(&f, "cgroup/cpu.max", "max 100000\n");
    check_threads(&f, 8);
    put(&f, "cgroup/cpu.max", "50000 100000\n");
    check_threads(&f, 1);
    put(&f, "cgroup/cpu.max", "390000 100000\n");
    check_threads(&f, 3);
    put(&f, "proc/self/status", "Name:\tx\nCpus_allowed_list:\t2,5\n");
    check_threads(&f, 2);
    drop(&f);
}

static void test_CPU_03_strictest_limit_up_the_path(void **state)
{
    (void)state;
    struct fake f;
    struct qn_topo t;
    make(&f, 8, false, "0-7");
    put(&f, "proc/self/cgroup", "0::/pod/box\n");
    put(&f, "cgroup/pod/box/cpu.max", "max 100000\n");
    put(&f, "cgroup/pod/cpu.max", "200000 100000\n");
    put(&f, "cgroup/pod/box/memory.max", "max\n");
    put(&f, "cgroup/pod/memory.max", "1073741824\n");
    put(&f, "cgroup/pod/memory.current", "805306368\n");
    put(&f, "cgroup/pod/memory.stat", "anon 5\ninactive_file 268435456\n");
    qn_topo_read(&t, &f.roots);
    assert_int_equal(t.n_default_threads, 2);
    assert_int_equal(t.memory_limit_bytes, 1073741824);
    assert_int_equal(t.memory_available_bytes, 1073741824 - 805306368 + 268435456);
    drop(&f);

    make(&f, 8, false, "0-7");
    put(&f, "proc/self/cgroup", "3:cpu,cpuacct:/box\n2:memory:/box\n");
    put(&f, "cgroup/cpu,cpuacct/box/cpu.cfs_quota_us", "150000\n");
    put(&f, "cgroup/cpu,cpuacct/box/cpu.cfs_period_us", "100000\n");
    put(&f, "cgroup/memory/box/memory.limit_in_bytes", "2147483648\n");
    put(&f, "cgroup/memory/box/memory.usage_in_bytes", "1048576\n");
    qn_topo_read(&t, &f.roots);
    assert_int_equal(t.n_default_threads, 1);
    assert_true(t.quota_cpus == 1.5);
    assert_int_equal(t.memory_limit_bytes, 2147483648);
    assert_int_equal(t.memory_available_bytes, 2147483648 - 1048576);

    put(&f, "cgroup/cpu,cpuacct/box/cpu.cfs_quota_us", "-1\n");
    put(&f, "cgroup/memory/box/memory.limit_in_bytes", "9223372036854771712\n");
    qn_topo_read(&t, &f.roots);
    assert_int_equal(t.n_default_threads, 8);
    assert_true(t.quota_cpus == 0);
    assert_int_equal(t.memory_limit_bytes, (uint64_t)16000000 << 10);
    assert_int_equal(t.memory_available_bytes, (uint64_t)8000000 << 10);
    drop(&f);
}

// The path names directories of the host; the mount shows the container's own limits.
static void test_limits_of_the_mount_count_when_the_path_is_hidden(void **state)
{
    (void)state;
    struct fake f;
    make(&f, 8, false, "0-7");
    put(&f, "proc/self/cgroup", "0::/../../elsewhere\n1:cpu:/docker/abc\n");
    put(&f, "cgroup/cpu.max", "300000 100000\n");
    check_threads(&f, 3);
    put(&f, "cgroup/cpu/cpu.cfs_quota_us", "200000\n");
    put(&f, "cgroup/cpu/cpu.cfs_period_us", "100000\n");
    check_threads(&f, 2);
    drop(&f);
}

static void test_CPU_04_one_thread_per_core(void **state)
{
    (void)state;
    struct fake f;
    struct qn_topo t;
    make(&f, 8, true, "0-7");
    qn_topo_read(&t, &f.roots);
    assert_int_equal(t.n_cpus, 8);
    assert_int_equal(t.n_default_threads, 4);
    for (int i = 0; i < 8; i++) { // each core once, then the second threads
        assert_int_equal(t.cpus[i], i);
    }
    put(&f, "proc/self/status", "Name:\tx\nCpus_allowed_list:\t0,4\n");
    qn_topo_read(&t, &f.roots);
    assert_int_equal(t.n_cpus, 2);
    assert_int_equal(t.n_default_threads, 1);
    drop(&f);
}

static void test_CPU_05_big_cores_by_default(void **state)
{
    (void)state;
    struct fake f;
    struct qn_topo t;
    make(&f, 8, false, "0-7");
    for (int i = 0; i < 8; i++) {
        char path[80];
        snprintf(path, sizeof path, "sys/devices/system/cpu/cpu%d/cpu_capacity", i);
        put(&f, path, "%d\n", i < 4 ? 446 : 1024);
    }
    qn_topo_read(&t, &f.roots);
    assert_int_equal(t.n_default_threads, 4);
    assert_int_equal(t.n_cpus, 8);
    for (int i = 0; i < 8; i++) {
        assert_int_equal(t.cpus[i], i < 4 ? i + 4 : i - 4);
    }
    put(&f, "proc/self/status", "Name:\tx\nCpus_allowed_list:\t0-2\n"); // little ones alone
    qn_topo_read(&t, &f.roots);
    assert_int_equal(t.n_default_threads, 3);
    drop(&f);
}

static void test_unreadable_roots_mean_no_limit(void **state)
{
    (void)state;
    struct qn_topo t;
    const struct qn_topo_roots roots = {.proc = "/nonexistent", .cgroup = "/nonexistent"};
    qn_topo_read(&t, &roots);
    assert_true(t.n_cpus >= 1 && t.n_default_threads >= 1 && t.n_numa_nodes >= 1);
    assert_true(t.quota_cpus == 0);
    assert_true(t.memory_limit_bytes == UINT64_MAX);
    char text[128];
    qn_topo_describe(&t, text, sizeof text);
    assert_non_null(strstr(text, "quota none, memory unknown"));
}

static void test_this_machine(void **state)
{
    (void)state;
    struct qn_topo t;
    char text[128];
    qn_topo_read(&t, NULL);
    qn_topo_describe(&t, text, sizeof text);
    print_message("%s\n", text);
    assert_true(t.n_cpus >= 1 && t.n_cores >= 1 && t.n_cores <= t.n_cpus);
    assert_true(t.n_default_threads >= 1 && t.n_default_threads <= t.n_cores);
    assert_true(t.memory_available_bytes <= t.memory_limit_bytes);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_CPU_01_threads_follow_mask_and_quota),
        cmocka_unit_test(test_CPU_03_strictest_limit_up_the_path),
        cmocka_unit_test(test_limits_of_the_mount_count_when_the_path_is_hidden),
        cmocka_unit_test(test_CPU_04_one_thread_per_core),
        cmocka_unit_test(test_CPU_05_big_cores_by_default),
        cmocka_unit_test(test_unreadable_roots_mean_no_limit),
        cmocka_unit_test(test_this_machine),
    };
    return cmocka_run_group_tests_name("topo", tests, NULL, NULL);
}
