#ifndef QN_BASE_TOPO_H
#define QN_BASE_TOPO_H

#include "base/status.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum {
    QN_TOPO_MAX_CPUS = 1024
};

/// What this process may use: its own mask and cgroup, not the host's. Read once at start.
struct qn_topo {
    size_t n_cpus;               ///< CPUs of the affinity mask
    int cpus[QN_TOPO_MAX_CPUS];  ///< their OS numbers, one per physical core first, big cores first
    size_t n_cores;              ///< physical cores among them (big ones only where unlike)
    double quota_cpus;           ///< strictest cgroup CPU quota up the path; 0: none
    uint64_t memory_limit_bytes; ///< strictest of cgroup limit and MemTotal
    uint64_t memory_available_bytes; ///< MemAvailable, capped by what the cgroup leaves
    size_t n_numa_nodes;
    size_t n_default_threads; ///< min(n_cores, floor(quota), at least 1)
};

/// Roots for tests; NULL members mean the real ones ("/proc", "/sys/fs/cgroup", "/sys").
struct qn_topo_roots {
    const char *proc;
    const char *cgroup;
    const char *sys;
};

/// hwloc for cores and nodes, cgroup v1 and v2 for quota and memory. Never fails: what cannot be
/// read counts as no limit.
void qn_topo_read(struct qn_topo *out_topo, const struct qn_topo_roots *roots);
/// "2 of 2 cores, quota none, memory 23.4 GiB available" into buf.
void qn_topo_describe(const struct qn_topo *t, char *buf, size_t n);

#endif
