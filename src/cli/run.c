#include <errno.h>
#include <fcntl.h>
#include <math.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <jansson.h>

#include "cli/args.h"
#include "cli/cli.h"

/// One conversation with one engine. `messages` grows by a user and an assistant message a turn.
struct session {
    struct quern_model *model;
    struct quern_engine *engine;
    struct quern_sampling sampling;
    json_t *messages;
    const char *system;
    bool raw;   ///< no chat template: the text itself is the prompt
    bool stats; ///< a line of timings after each answer
};

// Any thread may get the signal, so a prompt that waits is woken through a pipe, not by EINTR.
static volatile sig_atomic_t g_interrupted;
static int g_wake[2] = {-1, -1};

static void on_sigint(int sig)
{
    (void)sig;
    int e = errno;
    g_interrupted = 1;
    ssize_t n = write(g_wake[1], "", 1); // a full pipe wakes as well
    (void)n;
    errno = e;
}

static bool catch_sigint(void)
{
    const struct sigaction sa = {.sa_handler = on_sigint, .sa_flags = SA_RESTART};
    return pipe2(g_wake, O_CLOEXEC | O_NONBLOCK) == 0 && sigaction(SIGINT, &sa, NULL) == 0;
}

static void forget_sigint(void)
{
    char drop[64];
    while (g_wake[0] >= 0 && read(g_wake[0], drop, sizeof drop) > 0) {
    }
    g_interrupted = 0;
}

static bool add_message(json_t *messages, const char *role, const char *text, size_t n)
{
    json_t *m = json_pack("{s:s, s:o*}", "role", role, "content", json_stringn(text, n));
    if (m == NULL || json_object_get(m, "content") == NULL) {
        fprintf(stderr, "error: the %s message is not valid UTF-8\n", role);
        json_decref(m);
        return false;
    }
    return json_array_append_new(messages, m) == 0;
}

// Token ids of the next prompt: the conversation through the template, or the raw text.
static enum quern_status make_prompt(struct session *s, const char *text, size_t n,
                                     int32_t **out_ids, size_t *out_n, struct quern_error *err)
{
    if (s->raw) {
        return quern_tokenize(s->model, text, n, QUERN_TOK_ADD_SPECIAL, out_ids, out_n, err);
    }
    json_t *chat = json_pack("{s:O, s:b}", "messages", s->messages, "add_generation_prompt", 1);
    char *dump = chat != NULL ? json_dumps(chat, JSON_COMPACT) : NULL;
    json_decref(chat);
    if (dump == NULL) {
        snprintf(err->message, sizeof err->message, "could not allocate the conversation");
        return QUERN_E_NOMEM;
    }
    enum quern_status rc =
        quern_chat_prompt(s->model, dump, strlen(dump), NULL, out_ids, out_n, err);
    free(dump);
    return rc;
}

static void print_stats(const struct quern_usage *u)
{
    double tpot = u->completion_tokens > 1 ? u->decode_s / (double)(u->completion_tokens - 1) : 0;
    fprintf(stderr, "[%zu prompt tokens, %zu generated, TTFT %.0f ms, TPOT %.1f ms",
            u->prompt_tokens, u->completion_tokens, u->ttft_s * 1e3, tpot * 1e3);
    if (tpot > 0) {
        fprintf(stderr, ", %.1f tokens/s", 1 / tpot);
    }
    fprintf(stderr, "]\n");
}

// Submit, stream to stdout, collect the answer's text. SIGINT ends the answer, not the program.
static int answer(struct session *s, const int32_t *ids, size_t n_ids, char **out_text,
                  size_t *out_n)
{
    const struct quern_request_params params = {
        .prompt = ids, .n_prompt = n_ids, .n = 1, .sampling = s->sampling};
    struct quern_request *req = NULL;
    struct quern_error err = {0};
    if (quern_engine_submit(s->engine, &params, &req, &err) != QUERN_OK) {
        return qn_cli_fail(&err);
    }
    int rc = QN_EXIT_OK;
    char *text = NULL;
    size_t n = 0;
    bool done = false;
    while (!done) {
        if (g_interrupted) {
            quern_engine_abort(s->engine, req);
            g_interrupted = 0;
        }
        if (quern_engine_wait(s->engine, 100) == NULL) {
            continue;
        }
        struct quern_delta d;
        while (quern_request_read(req, &d)) {
            fwrite(d.text, 1, d.n_text, stdout);
            char *grown = realloc(text, n + d.n_text + 1);
            if (grown != NULL) {
                text = grown;
                memcpy(text + n, d.text, d.n_text);
                n += d.n_text;
                text[n] = '\0';
            }
            if (d.finish == QUERN_FINISH_ERROR) {
                fflush(stdout);
                fprintf(stderr, "\nerror: %s\n", d.error);
                rc = QN_EXIT_FAILED;
            }
        }
        if (fflush(stdout) != 0 || ferror(stdout) != 0) { // nobody reads: main says so
            quern_engine_abort(s->engine, req);
            rc = QN_EXIT_FAILED;
        }
        done = quern_request_finished(req);
    }
    forget_sigint(); // one that came too late is not for the prompt
    putchar('\n');
    fflush(stdout);
    struct quern_usage usage;
    quern_request_usage(req, &usage);
    if (s->stats) {
        print_stats(&usage);
    }
    quern_request_free(s->engine, req);
    *out_text = text;
    *out_n = n;
    return rc;
}

static bool reset_conversation(struct session *s)
{
    json_array_clear(s->messages);
    return s->system == NULL || add_message(s->messages, "system", s->system, strlen(s->system));
}

static int turn(struct session *s, const char *text, size_t n)
{
    if (!s->raw && !add_message(s->messages, "user", text, n)) {
        return QN_EXIT_FAILED;
    }
    int32_t *ids = NULL;
    size_t n_ids = 0;
    struct quern_error err = {0};
    int rc = QN_EXIT_FAILED;
    char *reply = NULL;
    size_t n_reply = 0;
    if (make_prompt(s, text, n, &ids, &n_ids, &err) != QUERN_OK) {
        qn_cli_fail(&err);
    } else {
        rc = answer(s, ids, n_ids, &reply, &n_reply);
    }
    quern_free(ids);
    if (!s->raw) {
        if (rc == QN_EXIT_OK) {
            add_message(s->messages, "assistant", reply != NULL ? reply : "", n_reply);
        } else { // a turn that failed leaves no trace
            json_array_remove(s->messages, json_array_size(s->messages) - 1);
        }
    }
    free(reply);
    return rc;
}

static void hint(const struct session *s)
{
    fprintf(stderr, "%s (%s)\nCtrl-C ends an answer, /clear starts over, Ctrl-D leaves.\n",
            quern_model_get_info(s->model)->name, s->raw ? "text completion" : "chat");
}

// Whether Ctrl-C came before a line did. Standard input is unbuffered, so what poll sees is all.
static bool interrupted_at_prompt(void)
{
    struct pollfd fds[2] = {{.fd = STDIN_FILENO, .events = POLLIN},
                            {.fd = g_wake[0], .events = POLLIN}};
    while (poll(fds, 2, -1) < 0 && errno == EINTR) {
    }
    return (fds[1].revents & POLLIN) != 0;
}

// One line of input without its end, -1 when there is no more. On a terminal Ctrl-C drops what was
// typed, and leaves when nothing came in between.
static ssize_t read_line(bool terminal, char **line, size_t *cap)
{
    if (terminal) {
        fputs("> ", stderr);
        if (interrupted_at_prompt()) {
            forget_sigint();
            fputs("\nCtrl-D or Ctrl-C once more leaves.\n> ", stderr);
            if (interrupted_at_prompt()) {
                fputc('\n', stderr);
                return -1;
            }
        }
    }
    ssize_t n = getline(line, cap, stdin);
    int e = errno;
    if (n < 0 && terminal) {
        fputc('\n', stderr); // the shell's prompt starts its own line
    }
    while (n > 0 && ((*line)[n - 1] == '\n' || (*line)[n - 1] == '\r')) {
        (*line)[--n] = '\0';
    }
    errno = e;
    return n;
}

static int interactive(struct session *s)
{
    bool terminal = isatty(STDIN_FILENO) != 0;
    if (terminal) {
        if (!catch_sigint() || setvbuf(stdin, NULL, _IONBF, 0) != 0) {
            fprintf(stderr, "error: could not set up the terminal: %s\n", strerror(errno));
            return QN_EXIT_FAILED;
        }
        hint(s);
    }
    char *line = NULL;
    size_t cap = 0;
    ssize_t n;
    int rc = QN_EXIT_OK;
    while ((n = read_line(terminal, &line, &cap)) >= 0) {
        if (n == 0) {
            continue;
        }
        if (strcmp(line, "/exit") == 0 || strcmp(line, "/quit") == 0) {
            break;
        }
        if (strcmp(line, "/clear") == 0) {
            if (!reset_conversation(s)) {
                rc = QN_EXIT_FAILED;
                break;
            }
            continue;
        }
        if (terminal && strcmp(line, "/help") == 0) {
            hint(s);
            continue;
        }
        int r = turn(s, line, (size_t)n);
        rc = terminal ? QN_EXIT_OK : r;
        if (ferror(stdout) != 0) {
            break;
        }
    }
    if (n < 0 && ferror(stdin) != 0) {
        fprintf(stderr, "error: standard input: could not read: %s\n", strerror(errno));
        rc = QN_EXIT_FAILED;
    }
    free(line);
    return rc;
}

// Sampling defaults of the model itself, where the command line says nothing.
static double choose(double given, double own, double fallback)
{
    return !isnan(given) ? given : (!isnan(own) ? own : fallback);
}

int qn_cmd_run(int argc, char **argv)
{
    const char *path = NULL, *prompt = NULL, *system = NULL;
    struct qn_load_args load = {0};
    int64_t max_tokens = 0, seed = INT64_MIN, top_k = -2; // INT64_MIN: not given
    double temperature = NAN, top_p = NAN, min_p = NAN, repetition = NAN;
    bool raw = false, ignore_eos = false, stats = false;
    struct qn_arg_list stop = {0};
    uint64_t kv_bytes = 0;
    const struct qn_arg args[] = {
        {.name = "prompt",
         .letter = 'p',
         .kind = QN_ARG_STR,
         .out = &prompt,
         .arg = "TEXT",
         .help = "answer this and exit; the answer alone goes to standard output"},
        {.name = "system",
         .letter = 's',
         .kind = QN_ARG_STR,
         .out = &system,
         .arg = "TEXT",
         .help = "system message"},
        {.name = "raw",
         .kind = QN_ARG_FLAG,
         .out = &raw,
         .help = "complete the text as it is, without the chat template"},
        {.name = "max-tokens",
         .letter = 'n',
         .kind = QN_ARG_INT,
         .out = &max_tokens,
         .arg = "N",
         .min = 1,
         .max = 1 << 24,
         .help = "longest answer; default: what the context leaves"},
        {.name = "temperature",
         .kind = QN_ARG_NUM,
         .out = &temperature,
         .arg = "T",
         .min = 0,
         .max = 2,
         .help = "0 is greedy; default: the model's own, else 1"},
        {.name = "top-p",
         .kind = QN_ARG_NUM,
         .out = &top_p,
         .arg = "P",
         .min = 0,
         .max = 1,
         .help = "sample from the likeliest tokens that make up P"},
        {.name = "top-k",
         .kind = QN_ARG_INT,
         .out = &top_k,
         .arg = "K",
         .min = -1,
         .max = 1 << 30,
         .help = "sample from the K likeliest tokens; 0 or -1: off"},
        {.name = "min-p",
         .kind = QN_ARG_NUM,
         .out = &min_p,
         .arg = "P",
         .min = 0,
         .max = 1,
         .help = "drop tokens less likely than P times the likeliest"},
        {.name = "repetition-penalty",
         .kind = QN_ARG_NUM,
         .out = &repetition,
         .arg = "R",
         .min = 0.01,
         .max = 100,
         .help = "above 1: discourage tokens seen before"},
        {.name = "seed",
         .kind = QN_ARG_INT,
         .out = &seed,
         .arg = "S",
         .help = "the same seed gives the same answer"},
        {.name = "stop",
         .kind = QN_ARG_LIST,
         .out = &stop,
         .arg = "TEXT",
         .help = "end before this text"},
        {.name = "ignore-eos",
         .kind = QN_ARG_FLAG,
         .out = &ignore_eos,
         .help = "go on to --max-tokens whatever the model says"},
        {.name = "activations",
         .kind = QN_ARG_CHOICE,
         .out = &load.activations,
         .arg = "A",
         .choices = qn_activation_choices,
         .help = "f32, bf16 or int8 at GEMM inputs; default int8 for integer weights, else bf16"},
        {.name = "chat-template",
         .kind = QN_ARG_STR,
         .out = &load.chat_template,
         .arg = "FILE",
         .help = "Jinja template to use instead of the model's own"},
        {.name = "parse-special-tokens",
         .kind = QN_ARG_FLAG,
         .out = &load.parse_special_tokens,
         .help = "match special tokens that are written in messages"},
        {.name = "max-model-len",
         .kind = QN_ARG_INT,
         .out = &load.max_model_len,
         .arg = "N",
         .min = 1,
         .max = 1 << 24,
         .help = "context length; default the model's own"},
        {.name = "kv-cache-memory-bytes",
         .kind = QN_ARG_BYTES,
         .out = &kv_bytes,
         .arg = "SIZE",
         .help = "KV cache, such as 2GiB; default: what one conversation can need"},
        {.name = "threads",
         .letter = 't',
         .kind = QN_ARG_INT,
         .out = &load.threads,
         .arg = "N",
         .min = 1,
         .max = 1024,
         .help = "worker threads; default: the cores this process may use"},
        {.name = "stats",
         .kind = QN_ARG_FLAG,
         .out = &stats,
         .help = "a line of timings after each answer, on standard error"},
        {.name = "verbose",
         .letter = 'v',
         .kind = QN_ARG_FLAG,
         .out = &load.verbose,
         .help = "say what was loaded and how"},
    };
    const struct qn_arg_spec spec = {
        .usage = "quern run MODEL [-p TEXT] [options]",
        .about = "Talk to a model in the terminal. With -p, or with text on standard input, answer "
                 "and exit. "
                 "A model with a chat template chats, one without completes text.",
        .examples = "  quern run model.gguf\n"
                    "  quern run DIR -p 'Name three rivers.' --max-tokens 64 --temperature 0\n",
        .args = args,
        .n_args = sizeof args / sizeof args[0],
        .positional = &path,
        .min_positional = 1,
        .max_positional = 1,
    };
    switch (qn_args_parse(&spec, argc, argv)) {
    case QN_ARGS_HELP:
        return QN_EXIT_OK;
    case QN_ARGS_ERROR:
        return QN_EXIT_USAGE;
    case QN_ARGS_OK:
        break;
    }
    int rc = QN_EXIT_FAILED;
    struct session s = {.stats = stats, .system = system};
    struct quern_error err = {0};
    s.model = qn_cli_load(path, &load);
    if (s.model == NULL) {
        goto done;
    }
    const struct quern_model_info *info = quern_model_get_info(s.model);
    s.raw = raw || !info->has_chat_template;
    if (!raw && info->chat_template_error != NULL) {
        fprintf(
            stderr,
            "error: chat template: %s (use --raw for plain completion, or --chat-template FILE)\n",
            info->chat_template_error);
        goto done;
    }
    if (s.raw && system != NULL) {
        fprintf(stderr, "error: option --system needs a chat template, and %s\n",
                raw ? "--raw turns it off"
                    : "this model has none (--chat-template FILE gives one)");
        rc = QN_EXIT_USAGE;
        goto done;
    }
    quern_sampling_init(&s.sampling);
    s.sampling.temperature = choose(temperature, info->temperature, 1.0);
    s.sampling.top_p = choose(top_p, info->top_p, 1.0);
    s.sampling.min_p = choose(min_p, info->min_p, 0.0);
    s.sampling.repetition_penalty = choose(repetition, info->repetition_penalty, 1.0);
    s.sampling.top_k = top_k != -2 ? top_k : (info->top_k >= 0 ? info->top_k : 0);
    s.sampling.max_tokens = max_tokens > 0 ? (size_t)max_tokens : info->max_model_len;
    s.sampling.ignore_eos = ignore_eos;
    s.sampling.has_seed = seed != INT64_MIN;
    s.sampling.seed = (uint64_t)seed;
    s.sampling.stop = stop.v;
    s.sampling.n_stop = stop.n;
    const struct quern_engine_options options = {.max_num_seqs = 1, .kv_cache_bytes = kv_bytes};
    if (quern_engine_new(s.model, &options, &s.engine, &err) != QUERN_OK) {
        qn_cli_fail(&err);
        goto done;
    }
    s.messages = json_array();
    if (s.messages == NULL || !reset_conversation(&s)) {
        goto done;
    }
    rc = prompt != NULL ? turn(&s, prompt, strlen(prompt)) : interactive(&s);
done:
    json_decref(s.messages);
    quern_engine_free(s.engine);
    quern_model_free(s.model);
    return rc;
}
