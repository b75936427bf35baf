#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>

#include "cli/args.h"
#include "cli/cli.h"

static const struct command {
    const char *name;
    qn_cmd_fn *fn;
    const char *help;
} commands[] = {
    {"run", qn_cmd_run, "talk to a model in the terminal, or answer one prompt"},
    {"serve", qn_cmd_serve, "OpenAI-compatible HTTP server"},
    {"inspect", qn_cmd_inspect, "what is in a checkpoint: configuration, tensors, metadata"},
    {"tokenize", qn_cmd_tokenize, "text to token ids and back"},
    {"logits", qn_cmd_logits, "teacher-forced logits as a NumPy file"},
    {"version", qn_cmd_version, "version, compiler and instruction set"},
};
enum {
    N_COMMANDS = sizeof commands / sizeof commands[0]
};

static void usage(FILE *to)
{
    fprintf(to, "usage: quern COMMAND [options]\n\n"
                "Runs and serves large language models on CPUs.\n\ncommands:\n");
    for (size_t i = 0; i < N_COMMANDS; i++) {
        fprintf(to, "  %-10s %s\n", commands[i].name, commands[i].help);
    }
    fprintf(
        to,
        "\nquern COMMAND --help tells more. MODEL is a Hugging Face directory (safetensors) or a\n"
        ".gguf file. QUERN_ISA=generic|avx2|… lowers the instruction set.\n");
}

// What a command printed must have arrived: a full disk or a closed pipe is a failure.
static int check_output(int rc)
{
    errno = 0;
    if (fflush(stdout) == 0 && ferror(stdout) == 0) {
        return rc;
    }
    fprintf(stderr, "error: standard output: could not write%s%s\n", errno != 0 ? ": " : "",
            errno != 0 ? strerror(errno) : "");
    return QN_EXIT_FAILED;
}

int main(int argc, char **argv)
{
    signal(SIGPIPE, SIG_IGN); // writes fail instead, and say so
    signal(SIGXFSZ, SIG_IGN);
    if (argc < 2) {
        usage(stderr);
        return QN_EXIT_USAGE;
    }
    const char *name = argv[1];
    if (strcmp(name, "--help") == 0 || strcmp(name, "-h") == 0 || strcmp(name, "help") == 0) {
        if (argc == 3 && name[0] != '-') { // quern help COMMAND
            for (size_t i = 0; i < N_COMMANDS; i++) {
                if (strcmp(argv[2], commands[i].name) == 0) {
                    return check_output(commands[i].fn(2, (char *[]){argv[2], "--help", NULL}));
                }
            }
        }
        usage(stdout);
        return check_output(QN_EXIT_OK);
    }
    if (strcmp(name, "--version") == 0) {
        name = "version";
    }
    const char *names[N_COMMANDS];
    for (size_t i = 0; i < N_COMMANDS; i++) {
        if (strcmp(name, commands[i].name) == 0) {
            return check_output(commands[i].fn(argc - 1, argv + 1));
        }
        names[i] = commands[i].name;
    }
    const char *near = qn_args_nearest(name, names, N_COMMANDS);
    fprintf(stderr, "error: unknown command \"%s\"%s%s%s (quern --help lists all)\n", name,
            near != NULL ? ", did you mean \"" : "", near != NULL ? near : "",
            near != NULL ? "\"?" : "");
    return QN_EXIT_USAGE;
}
