#include <stdio.h>
#include <stdlib.h>

#include "cli/args.h"
#include "cli/cli.h"
#include "kernels/cpu.h"

int qn_cmd_version(int argc, char **argv)
{
    const struct qn_arg_spec spec = {
        .usage = "quern version",
        .about =
            "Print quern's version, what it was compiled with, and the instruction set that its "
            "kernels use on this machine.",
    };
    switch (qn_args_parse(&spec, argc, argv)) {
    case QN_ARGS_HELP:
        return QN_EXIT_OK;
    case QN_ARGS_ERROR:
        return QN_EXIT_USAGE;
    case QN_ARGS_OK:
        break;
    }
    struct qn_err err = {0};
    if (qn_cpu_init(getenv("QUERN_ISA"), &err) != QN_OK) {
        fprintf(stderr, "error: %s\n", err.msg);
        return QN_EXIT_FAILED;
    }
    printf("quern %s\ncompiler %s %s\nisa %s\n", quern_version(),
#ifdef __clang__
           "clang", __clang_version__,
#else
           "gcc", __VERSION__,
#endif
           qn_isa_name(qn_cpu_isa()));
    return QN_EXIT_OK;
}
