#include "base/topo.h"

#include <hwloc.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/file.h"

enum {
    FILE_BYTES = 64 << 10, // of a /proc or cgroup file that is looked at
    PATH_BYTES = 4096
};

// Text of DIR/NAME in buf, false when it cannot be read. These files have no size to stat.
static bool read_text(const char *dir, const char *name, char *buf, size_t n_buf)
{
    char path[PATH_BYTES];
    int len = snprintf(path, sizeof path, "%s/%s", dir, name);
    if (len < 0 || (size_t)len >= sizeof path) {
        return false;
    }
    FILE *f = fopen(path, "re");
    if (f == NULL) {
        return false;
    }
    size_t n = fread(buf, 1, n_buf - 1, f);
    bool ok = !ferror(f);
    fclose(f);
    buf[n] = '\0';
    return ok;
}

// The number after "KEY" at the start of a line.
static bool find_number(const char *text, const char *key, uint64_t *out)
{
    size_t n = strlen(key);
    for (const char *line = text; line != NULL; line = strchr(line, '\n')) {
        line += *line == '\n';
        if (strncmp(line, key, n) == 0) {
            char *end;
            unsigned long long v = strtoull(line + n, &end, 10);
            if (end != line + n) {
                *out = v;
                return true;
            }
        }
        if (*line == '\0') {
            break;
        }
    }
    return false;
}

/* ---- cgroups ---- */

struct limits {
    double quota_cpus;     // 0: none
    uint64_t memory_limit; // UINT64_MAX: none
    uint64_t memory_left;
};

static void take_quota(struct limits *l, double quota, double period)
{
    if (quota > 0 && period > 0 && (l->quota_cpus == 0 || quota / period < l->quota_cpus)) {
        l->quota_cpus = quota / period;
    }
}

static void take_memory(struct limits *l, uint64_t limit, uint64_t used, uint64_t reclaimable)
{
    // v1 writes "no limit" as the largest multiple of a page.
    if (limit == 0 || limit >= (uint64_t)1 << 62) {
        return;
    }
    used -= reclaimable < used ? reclaimable : used;
    uint64_t left = used < limit ? limit - used : 0;
    l->memory_limit = limit < l->memory_limit ? limit : l->memory_limit;
    l->memory_left = left < l->memory_left ? left : l->memory_left;
}

static void read_v2_cpu(const char *dir, struct limits *l)
{
    char text[FILE_BYTES];
    double quota, period;
    if (read_text(dir, "cpu.max", text, sizeof text) &&
        sscanf(text, "%lf %lf", &quota, &period) == 2) { // "max 100000" does not scan: no limit
        take_quota(l, quota, period);
    }
}

static void read_v2_memory(const char *dir, struct limits *l)
{
    char text[FILE_BYTES];
    uint64_t limit = 0, used = 0, reclaimable = 0;
    if (!read_text(dir, "memory.max", text, sizeof text) || !find_number(text, "", &limit)) {
        return;
    }
    if (read_text(dir, "memory.current", text, sizeof text)) {
        (void)find_number(text, "", &used);
    }
    if (read_text(dir, "memory.stat", text, sizeof text)) {
        (void)find_number(text, "inactive_file ", &reclaimable);
    }
    take_memory(l, limit, used, reclaimable);
}

static void read_v2(const char *dir, struct limits *l)
{
    read_v2_cpu(dir, l);
    read_v2_memory(dir, l);
}

static void read_v1_cpu(const char *dir, struct limits *l)
{
    char quota[64], period[64];
    if (read_text(dir, "cpu.cfs_quota_us", quota, sizeof quota) &&
        read_text(dir, "cpu.cfs_period_us", period, sizeof period)) {
        take_quota(l, strtod(quota, NULL), strtod(period, NULL)); // -1: none
    }
}

static void read_v1_memory(const char *dir, struct limits *l)
{
    char text[FILE_BYTES];
    uint64_t limit = 0, used = 0, reclaimable = 0;
    if (!read_text(dir, "memory.limit_in_bytes", text, sizeof text) ||
        !find_number(text, "", &limit)) {
        return;
    }
    if (read_text(dir, "memory.usage_in_bytes", text, sizeof text)) {
        (void)find_number(text, "", &used);
    }
    if (read_text(dir, "memory.stat", text, sizeof text)) {
        (void)find_number(text, "total_inactive_file ", &reclaimable);
    }
    take_memory(l, limit, used, reclaimable);
}

// Every directory from MOUNT/PATH up to MOUNT. Inside a container the path may name directories of
// the host that are not visible here; they read as nothing, and the mount itself still counts.
static void walk_up(const char *mount, const char *path,
                    void (*read)(const char *, struct limits *), struct limits *l)
{
    char dir[PATH_BYTES];
    size_t n_mount = strlen(mount);
    bool outside = strstr(path, "/..") != NULL;
    int n = snprintf(dir, sizeof dir, "%s%s", mount, outside ? "" : path);
    if (n < 0 || (size_t)n >= sizeof dir) {
        return;
    }
    for (;;) {
        read(dir, l);
        char *slash = strrchr(dir, '/');
        if (slash == NULL || slash < dir + n_mount) {
            return;
        }
        *slash = '\0';
    }
}

static bool has_controller(const char *list, const char *name)
{
    size_t n = strlen(name);
    for (const char *p = list; (p = strstr(p, name)) != NULL; p += n) {
        if ((p == list || p[-1] == ',') && (p[n] == '\0' || p[n] == ',')) {
            return true;
        }
    }
    return false;
}

static void walk_v1(const char *root, const char *controllers, const char *path, struct limits *l)
{
    static const struct {
        const char *name;
        void (*read)(const char *, struct limits *);
    } kinds[] = {{"cpu", read_v1_cpu}, {"memory", read_v1_memory}};
    for (size_t i = 0; i < sizeof kinds / sizeof kinds[0]; i++) {
        if (!has_controller(controllers, kinds[i].name)) {
            continue;
        }
        // Mounted under the whole list ("cpu,cpuacct") or under the controller's own name.
        const char *names[] = {controllers, kinds[i].name};
        for (size_t j = 0; j < 2; j++) {
            char mount[PATH_BYTES];
            int n = snprintf(mount, sizeof mount, "%s/%s", root, names[j]);
            if (n > 0 && (size_t)n < sizeof mount && qn_dir_exists(mount)) {
                walk_up(mount, path, kinds[i].read, l);
                break;
            }
        }
    }
}

static void read_cgroups(const char *proc, const char *root, struct limits *l)
{
    char text[FILE_BYTES];
    if (!read_text(proc, "self/cgroup", text, sizeof text)) {
        return;
    }
    char *save = NULL;
    for (char *line = strtok_r(text, "\n", &save); line != NULL;
         line = strtok_r(NULL, "\n", &save)) {
        char *controllers = strchr(line, ':');
        char *path = controllers != NULL ? strchr(controllers + 1, ':') : NULL;
        if (path == NULL) {
            continue;
        }
        controllers++;
        *path++ = '\0';
        if (*controllers != '\0') {
            walk_v1(root, controllers, path, l);
            continue;
        }
        walk_up(root, path, read_v2, l);
        char unified[PATH_BYTES]; // v2 beside v1
        int n = snprintf(unified, sizeof unified, "%s/unified", root);
        if (n > 0 && (size_t)n < sizeof unified && qn_dir_exists(unified)) {
            walk_up(unified, path, read_v2, l);
        }
    }
}

/* ---- CPUs ---- */

// "0-3,8" into a set.
static bool parse_cpu_list(const char *s, hwloc_bitmap_t set)
{
    while (*s >= '0' && *s <= '9') {
        char *end;
        unsigned long a = strtoul(s, &end, 10), b = a;
        if (*end == '-') {
            b = strtoul(end + 1, &end, 10);
        }
        if (a > b || b >= QN_TOPO_MAX_CPUS) {
            return false;
        }
        hwloc_bitmap_set_range(set, (unsigned)a, (int)b);
        s = *end == ',' ? end + 1 : end;
    }
    return !hwloc_bitmap_iszero(set);
}

// CPUs that this process may use: /proc/self/status, else the system call.
static void read_mask(const char *proc, hwloc_bitmap_t set)
{
    char text[FILE_BYTES];
    static const char key[] = "\nCpus_allowed_list:";
    if (read_text(proc, "self/status", text, sizeof text)) {
        const char *p = strstr(text, key);
        if (p != NULL) {
            p += sizeof key - 1;
            p += strspn(p, " \t");
            if (parse_cpu_list(p, set)) {
                return;
            }
            hwloc_bitmap_zero(set);
        }
    }
    cpu_set_t mine;
    if (sched_getaffinity(0, sizeof mine, &mine) == 0) {
        for (unsigned i = 0; i < CPU_SETSIZE; i++) {
            if (CPU_ISSET(i, &mine)) {
                hwloc_bitmap_set(set, i);
            }
        }
    }
    if (hwloc_bitmap_iszero(set)) {
        hwloc_bitmap_set(set, 0);
    }
}

/// What hwloc knows of one CPU of the mask.
struct cpu {
    int os;
    size_t core;    // any number shared by the hardware threads of a core
    size_t sibling; // place among them within the mask
    bool little;    // of the least efficient kind where kinds differ
};

static hwloc_topology_t load_hwloc(const char *sys)
{
    // A fake root for tests goes to hwloc through its own variable: DIR of DIR/sys.
    char root[PATH_BYTES];
    if (sys != NULL) {
        int n = snprintf(root, sizeof root, "%s/..", sys);
        if (n < 0 || (size_t)n >= sizeof root || setenv("HWLOC_FSROOT", root, 1) != 0) {
            return NULL;
        }
    }
    hwloc_topology_t topo = NULL;
    if (hwloc_topology_init(&topo) == 0) {
        // The mask is applied below; a cpuset must not hide which threads share a core.
        hwloc_topology_set_flags(topo, HWLOC_TOPOLOGY_FLAG_INCLUDE_DISALLOWED);
        // The kernel's view is all that is needed; asking CPUID visits every CPU and knows no root.
        hwloc_topology_set_components(topo, HWLOC_TOPOLOGY_COMPONENTS_FLAG_BLACKLIST, "x86");
        if (hwloc_topology_load(topo) != 0) {
            hwloc_topology_destroy(topo);
            topo = NULL;
        }
    }
    if (sys != NULL) {
        unsetenv("HWLOC_FSROOT");
    }
    return topo;
}

static bool is_little(hwloc_topology_t topo, unsigned os)
{
    if (topo == NULL || hwloc_cpukinds_get_nr(topo, 0) < 2) {
        return false;
    }
    hwloc_bitmap_t one = hwloc_bitmap_alloc();
    if (one == NULL) {
        return false;
    }
    hwloc_bitmap_only(one, os);
    int kind = hwloc_cpukinds_get_by_cpuset(topo, one, 0), efficiency = -1;
    hwloc_bitmap_free(one);
    // Kinds are ranked by rising performance; -1 stands for "not known".
    return kind >= 0 &&
           hwloc_cpukinds_get_info(topo, (unsigned)kind, NULL, &efficiency, NULL, NULL, 0) == 0 &&
           efficiency == 0;
}

static size_t core_of(hwloc_topology_t topo, unsigned os)
{
    hwloc_obj_t pu = topo != NULL ? hwloc_get_pu_obj_by_os_index(topo, os) : NULL;
    hwloc_obj_t core = pu != NULL ? hwloc_get_ancestor_obj_by_type(topo, HWLOC_OBJ_CORE, pu) : NULL;
    // Unknown: a core of its own, numbered past every real one.
    return core != NULL ? core->logical_index : QN_TOPO_MAX_CPUS + os;
}

static int by_preference(const void *pa, const void *pb)
{
    const struct cpu *a = pa, *b = pb;
    if (a->sibling != b->sibling) {
        return a->sibling < b->sibling ? -1 : 1;
    }
    if (a->little != b->little) {
        return a->little ? 1 : -1;
    }
    return a->os < b->os ? -1 : a->os > b->os;
}

static void read_cpus(struct qn_topo *t, const char *proc, const char *sys)
{
    static const size_t none = (size_t)-1;
    hwloc_topology_t topo = load_hwloc(sys);
    hwloc_bitmap_t mask = hwloc_bitmap_alloc();
    struct cpu *cpus = calloc(QN_TOPO_MAX_CPUS, sizeof *cpus);
    if (mask == NULL || cpus == NULL) { // no memory for a list: one CPU is always right
        t->n_cpus = t->n_cores = t->n_numa_nodes = 1;
        goto done;
    }
    read_mask(proc, mask);
    size_t n = 0, n_cores = 0, n_big_cores = 0;
    for (int os = hwloc_bitmap_first(mask); os >= 0 && n < QN_TOPO_MAX_CPUS;
         os = hwloc_bitmap_next(mask, os)) {
        struct cpu *c = &cpus[n];
        *c = (struct cpu){
            .os = os, .core = core_of(topo, (unsigned)os), .little = is_little(topo, (unsigned)os)};
        size_t last = none;
        for (size_t i = n; i-- > 0 && last == none;) {
            last = cpus[i].core == c->core ? i : none;
        }
        c->sibling = last != none ? cpus[last].sibling + 1 : 0;
        n_cores += c->sibling == 0;
        n_big_cores += c->sibling == 0 && !c->little;
        n++;
    }
    qsort(cpus, n, sizeof *cpus, by_preference);
    for (size_t i = 0; i < n; i++) {
        t->cpus[i] = cpus[i].os;
    }
    t->n_cpus = n;
    t->n_cores = n_big_cores > 0 ? n_big_cores : n_cores; // a mask of little cores alone
    t->n_numa_nodes = 0;
    int n_nodes = topo != NULL ? hwloc_get_nbobjs_by_type(topo, HWLOC_OBJ_NUMANODE) : 1;
    for (int i = 0; i < n_nodes; i++) {
        hwloc_obj_t node =
            topo != NULL ? hwloc_get_obj_by_type(topo, HWLOC_OBJ_NUMANODE, (unsigned)i) : NULL;
        t->n_numa_nodes += node == NULL || hwloc_bitmap_intersects(node->cpuset, mask);
    }
    t->n_numa_nodes += t->n_numa_nodes == 0;
done:
    free(cpus);
    hwloc_bitmap_free(mask);
    if (topo != NULL) {
        hwloc_topology_destroy(topo);
    }
}

void qn_topo_read(struct qn_topo *out_topo, const struct qn_topo_roots *roots)
{
    const struct qn_topo_roots real = {0};
    roots = roots != NULL ? roots : &real;
    const char *proc = roots->proc != NULL ? roots->proc : "/proc";
    const char *cgroup = roots->cgroup != NULL ? roots->cgroup : "/sys/fs/cgroup";
    memset(out_topo, 0, sizeof *out_topo);
    read_cpus(out_topo, proc, roots->sys);

    struct limits l = {.memory_limit = UINT64_MAX, .memory_left = UINT64_MAX};
    read_cgroups(proc, cgroup, &l);
    out_topo->quota_cpus = l.quota_cpus;
    char text[FILE_BYTES];
    uint64_t total_kib = 0, available_kib = 0;
    if (read_text(proc, "meminfo", text, sizeof text)) {
        (void)find_number(text, "MemTotal:", &total_kib);
        (void)find_number(text, "MemAvailable:", &available_kib);
    }
    uint64_t total = total_kib > 0 ? total_kib << 10 : UINT64_MAX;
    uint64_t available = available_kib > 0 ? available_kib << 10 : total;
    out_topo->memory_limit_bytes = l.memory_limit < total ? l.memory_limit : total;
    out_topo->memory_available_bytes = l.memory_left < available ? l.memory_left : available;

    size_t n = out_topo->n_cores;
    if (l.quota_cpus > 0 && l.quota_cpus < (double)n) {
        n = l.quota_cpus < 1 ? 1 : (size_t)l.quota_cpus;
    }
    out_topo->n_default_threads = n < 1 ? 1 : n;
}

void qn_topo_describe(const struct qn_topo *t, char *buf, size_t n)
{
    char quota[32] = "none", memory[48] = "unknown";
    if (t->quota_cpus > 0) {
        snprintf(quota, sizeof quota, "%.2f CPUs", t->quota_cpus);
    }
    if (t->memory_available_bytes != UINT64_MAX) {
        snprintf(memory, sizeof memory, "%.1f GiB available",
                 (double)t->memory_available_bytes / (double)(1 << 30));
    }
    snprintf(buf, n, "%zu of %zu cores, quota %s, memory %s", t->n_default_threads, t->n_cores,
             quota, memory);
}
