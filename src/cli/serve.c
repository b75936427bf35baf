#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/log.h"
#include "cli/args.h"
#include "cli/cli.h"
#include "server/server.h"

struct start {
    uint64_t t0_ns;
};

static void on_listening(void *user, const char *address)
{
    (void)user;
    qn_log(QN_LOG_INFO, "listening on %s, loading the model", address);
}

static void on_ready(void *user, const struct quern_model *model)
{
    const struct start *s = user;
    const struct quern_model_info *i = quern_model_get_info(model);
    qn_log(QN_LOG_INFO, "%s: %s, %zu layers, %.1f M parameters, %.1f MB of weights, context %zu",
           i->name, i->architecture, i->n_layers, (double)i->n_params * 1e-6,
           (double)i->weight_bytes * 1e-6, i->max_model_len);
    qn_log(QN_LOG_INFO, "kernels %s, activations %s, %zu threads; %s", i->isa, i->activations,
           i->n_threads, i->resources);
    if (i->chat_template_error != NULL) {
        qn_log(QN_LOG_WARN, "chat template: %s; chat answers 400, completions work",
               i->chat_template_error);
    } else if (!i->has_chat_template) {
        qn_log(QN_LOG_WARN, "no chat template: chat answers 400 (--chat-template FILE gives one)");
    }
    qn_log(QN_LOG_INFO, "ready after %.2f s", (double)(qn_clock_ns() - s->t0_ns) * 1e-9);
}

// Flags win over the environment variables that vLLM's users have set.
static void take_environment(struct qn_arg_list *keys, bool *keep_alive_given, double *keep_alive_s,
                             uint64_t *kv_bytes)
{
    const char *v = getenv("VLLM_API_KEY");
    if (keys->n == 0 && v != NULL && v[0] != '\0') {
        keys->v[keys->n++] = v;
    }
    v = getenv("VLLM_HTTP_TIMEOUT_KEEP_ALIVE");
    if (!*keep_alive_given && v != NULL) {
        char *end = NULL;
        double s = strtod(v, &end);
        if (end != v && *end == '\0' && s >= 0 && s < 1e6) {
            *keep_alive_s = s;
            *keep_alive_given = true;
        }
    }
    v = getenv("VLLM_CPU_KVCACHE_SPACE");
    if (*kv_bytes == 0 && v != NULL) {
        char *end = NULL;
        double gib = strtod(v, &end);
        if (end != v && *end == '\0' && gib > 0 && gib < 1e6) {
            *kv_bytes = (uint64_t)(gib * 0x1p30);
        }
    }
}

int qn_cmd_serve(int argc, char **argv)
{
    struct start start = {.t0_ns = qn_clock_ns()};
    struct qn_server_options o;
    qn_server_options_init(&o);
    const char *pos = NULL, *model_flag = NULL;
    const char *host = NULL, *uds = NULL, *root_path = NULL, *template = NULL;
    const char *override_gen = NULL, *template_kwargs = NULL, *role = NULL;
    struct qn_arg_list names = {0}, keys = {0}, origins = {0}, methods = {0}, headers = {0};
    int activations = 0, gen_config = 0, key_scope = 0;
    int64_t port = 8000, max_len = 0, threads = 0, max_seqs = 0, batched = 0, block = 0, queue = 0;
    int64_t max_n = o.max_n, max_logprobs = o.max_logprobs, seed = -1;
    int64_t head_bytes = (int64_t)o.max_head_bytes, header_count = (int64_t)o.max_headers;
    double shutdown_s = (double)o.shutdown_ms * 1e-3, ping_s = (double)o.sse_ping_s;
    double keep_alive_s = NAN;
    uint64_t kv_bytes = 0, body_bytes = o.max_body_bytes;
    bool parse_special = false, access_log = true;
    static const char *const gen_choices[] = {"auto", "vllm", "none", NULL};
    static const char *const scope_choices[] = {"v1", "all", NULL};
    const struct qn_arg args[] = {
        {.name = "host",
         .kind = QN_ARG_STR,
         .out = &host,
         .arg = "ADDR",
         .help = "address to listen on; default: all interfaces"},
        {.name = "port",
         .kind = QN_ARG_INT,
         .out = &port,
         .arg = "N",
         .min = 0,
         .max = 65535,
         .help = "default 8000; 0: any free one"},
        {.name = "uds",
         .kind = QN_ARG_STR,
         .out = &uds,
         .arg = "PATH",
         .help = "listen on a Unix socket instead"},
        {.name = "served-model-name",
         .kind = QN_ARG_LIST,
         .out = &names,
         .arg = "NAME…",
         .help = "names that requests may use; the first is echoed in answers"},
        {.name = "api-key",
         .kind = QN_ARG_LIST,
         .out = &keys,
         .arg = "KEY…",
         .help = "require one of these as bearer token (also VLLM_API_KEY)"},
        {.name = "api-key-scope",
         .kind = QN_ARG_CHOICE,
         .out = &key_scope,
         .arg = "S",
         .choices = scope_choices,
         .help = "v1: guard /v1 and the like (default); all: every path"},
        {.name = "root-path",
         .kind = QN_ARG_STR,
         .out = &root_path,
         .arg = "PREFIX",
         .help = "prefix that a proxy leaves on paths"},
        {.name = "max-model-len",
         .kind = QN_ARG_INT,
         .out = &max_len,
         .arg = "N",
         .min = 1,
         .max = 1 << 28,
         .help = "context length; default the model's own"},
        {.name = "max-num-seqs",
         .kind = QN_ARG_INT,
         .out = &max_seqs,
         .arg = "N",
         .min = 1,
         .max = 4096,
         .help = "sequences in one step; default 32"},
        {.name = "max-num-batched-tokens",
         .kind = QN_ARG_INT,
         .out = &batched,
         .arg = "N",
         .min = 1,
         .max = 1 << 20,
         .help = "tokens of one step, decode and prefill together; default 512"},
        {.name = "max-queue",
         .kind = QN_ARG_INT,
         .out = &queue,
         .arg = "N",
         .min = 1,
         .max = 1 << 20,
         .help = "waiting requests before 429; default 1024"},
        {.name = "block-size",
         .kind = QN_ARG_INT,
         .out = &block,
         .arg = "N",
         .min = 16,
         .max = 256,
         .help = "tokens of a KV block, a power of two; default 16"},
        {.name = "kv-cache-memory-bytes",
         .kind = QN_ARG_BYTES,
         .out = &kv_bytes,
         .arg = "SIZE",
         .help = "KV cache, such as 4GiB; default: a share of what memory is left (also "
                 "VLLM_CPU_KVCACHE_SPACE, in GiB)"},
        {.name = "activations",
         .kind = QN_ARG_CHOICE,
         .out = &activations,
         .arg = "A",
         .choices = qn_activation_choices,
         .help = "f32, bf16 or int8 at GEMM inputs; default int8 for integer weights, else bf16"},
        {.name = "threads",
         .letter = 't',
         .kind = QN_ARG_INT,
         .out = &threads,
         .arg = "N",
         .min = 1,
         .max = 1024,
         .help = "worker threads; default: the cores this process may use"},
        {.name = "seed",
         .kind = QN_ARG_INT,
         .out = &seed,
         .arg = "S",
         .help = "base of the seeds of requests without one; default: random"},
        {.name = "chat-template",
         .kind = QN_ARG_STR,
         .out = &template,
         .arg = "FILE",
         .help = "Jinja template to use instead of the model's own"},
        {.name = "default-chat-template-kwargs",
         .kind = QN_ARG_STR,
         .out = &template_kwargs,
         .arg = "JSON",
         .help = "values for the template; a request's own win"},
        {.name = "response-role",
         .kind = QN_ARG_STR,
         .out = &role,
         .arg = "ROLE",
         .help = "role of answers; default assistant"},
        {.name = "parse-special-tokens",
         .kind = QN_ARG_FLAG,
         .out = &parse_special,
         .help = "match special tokens that are written in messages"},
        {.name = "generation-config",
         .kind = QN_ARG_CHOICE,
         .out = &gen_config,
         .arg = "G",
         .choices = gen_choices,
         .help = "auto: the model's sampling defaults; none or vllm: ignore them"},
        {.name = "override-generation-config",
         .kind = QN_ARG_STR,
         .out = &override_gen,
         .arg = "JSON",
         .help = "sampling defaults that win over the model's"},
        {.name = "max-logprobs",
         .kind = QN_ARG_INT,
         .out = &max_logprobs,
         .arg = "N",
         .min = -1,
         .max = 1 << 20,
         .help = "most alternatives per token; default 20, -1: the whole vocabulary"},
        {.name = "max-n",
         .kind = QN_ARG_INT,
         .out = &max_n,
         .arg = "N",
         .min = 1,
         .max = 16384,
         .help = "most choices per request; default 128"},
        {.name = "return-tokens-as-token-ids",
         .kind = QN_ARG_FLAG,
         .out = &o.tokens_as_token_ids,
         .help = "logprobs name tokens as token_id:N"},
        {.name = "enable-force-include-usage",
         .kind = QN_ARG_FLAG,
         .out = &o.force_include_usage,
         .help = "usage in every stream"},
        {.name = "enable-server-load-tracking",
         .kind = QN_ARG_FLAG,
         .out = &o.track_load,
         .help = "/load counts running requests"},
        {.name = "metrics-legacy-names",
         .kind = QN_ARG_FLAG,
         .out = &o.metrics_legacy_names,
         .help = "old vLLM metric names too (on; --no-metrics-legacy-names)"},
        {.name = "allowed-origins",
         .kind = QN_ARG_LIST,
         .out = &origins,
         .arg = "O…",
         .help = "CORS; default any"},
        {.name = "allowed-methods",
         .kind = QN_ARG_LIST,
         .out = &methods,
         .arg = "M…",
         .help = "CORS"},
        {.name = "allowed-headers",
         .kind = QN_ARG_LIST,
         .out = &headers,
         .arg = "H…",
         .help = "CORS"},
        {.name = "allow-credentials",
         .kind = QN_ARG_FLAG,
         .out = &o.allow_credentials,
         .help = "CORS"},
        {.name = "max-request-body-bytes",
         .kind = QN_ARG_BYTES,
         .out = &body_bytes,
         .arg = "SIZE",
         .help = "larger bodies get 413; default 64MiB"},
        {.name = "h11-max-incomplete-event-size",
         .kind = QN_ARG_INT,
         .out = &head_bytes,
         .arg = "N",
         .min = 1024,
         .max = 1 << 24,
         .help = "largest header block; default 64 KiB"},
        {.name = "h11-max-header-count",
         .kind = QN_ARG_INT,
         .out = &header_count,
         .arg = "N",
         .min = 8,
         .max = 65536,
         .help = "most headers; default 256"},
        {.name = "keep-alive-timeout",
         .kind = QN_ARG_NUM,
         .out = &keep_alive_s,
         .arg = "S",
         .min = 0,
         .max = 1e5,
         .help = "idle connections are closed after S seconds; default 75"},
        {.name = "sse-ping-seconds",
         .kind = QN_ARG_NUM,
         .out = &ping_s,
         .arg = "S",
         .min = 0,
         .max = 3600,
         .help = "comment lines in silent streams, for proxies; default off"},
        {.name = "shutdown-timeout",
         .kind = QN_ARG_NUM,
         .out = &shutdown_s,
         .arg = "S",
         .min = 0,
         .max = 1e5,
         .help = "how long running answers may take after SIGTERM; default 30"},
        {.name = "access-log",
         .kind = QN_ARG_FLAG,
         .out = &access_log,
         .help = "a line per request (on; --no-access-log)"},
        {.name = "model", .kind = QN_ARG_STR, .out = &model_flag, .arg = "MODEL"},
        {.name = "disable-access-log", .kind = QN_ARG_IGNORED},
        {.name = "enable-request-id-headers", .kind = QN_ARG_IGNORED},
        {.name = "enable-prompt-tokens-details", .kind = QN_ARG_IGNORED},
        {.name = "enforce-eager", .kind = QN_ARG_IGNORED},
        {.name = "enable-chunked-prefill", .kind = QN_ARG_IGNORED},
        {.name = "disable-log-stats", .kind = QN_ARG_IGNORED},
        {.name = "trust-remote-code", .kind = QN_ARG_IGNORED},
        {.name = "swap-space", .kind = QN_ARG_IGNORED, .arg = "N"},
        {.name = "cpu-offload-gb", .kind = QN_ARG_IGNORED, .arg = "N"},
        {.name = "uvicorn-log-level", .kind = QN_ARG_IGNORED, .arg = "L"},
    };
    const struct qn_arg_spec spec = {
        .usage = "quern serve MODEL [options]",
        .about =
            "Serve a model over HTTP with OpenAI's API: /v1/chat/completions, /v1/completions, "
            "/v1/models, /tokenize, /metrics and /health. The port is bound at once and answers "
            "503 until the model is loaded. SIGTERM lets running answers finish.",
        .examples =
            "  quern serve model.gguf --host 127.0.0.1 --port 8000\n"
            "  quern serve DIR --served-model-name llama --api-key SECRET --max-num-seqs 16\n",
        .args = args,
        .n_args = sizeof args / sizeof args[0],
        .positional = &pos,
        .min_positional = 0,
        .max_positional = 1,
    };
    o.metrics_legacy_names = true;
    switch (qn_args_parse(&spec, argc, argv)) {
    case QN_ARGS_HELP:
        return QN_EXIT_OK;
    case QN_ARGS_ERROR:
        return QN_EXIT_USAGE;
    case QN_ARGS_OK:
        break;
    }
    if ((pos == NULL) == (model_flag == NULL)) {
        fprintf(stderr, "error: give one model, %s\nusage: %s\n",
                pos == NULL ? "found none" : "found MODEL and --model", spec.usage);
        return QN_EXIT_USAGE;
    }
    bool keep_alive_given = !isnan(keep_alive_s);
    take_environment(&keys, &keep_alive_given, &keep_alive_s, &kv_bytes);
    o.model = (struct quern_model_options){.path = pos != NULL ? pos : model_flag,
                                           .chat_template_path = template,
                                           .activations = (enum quern_activations)activations,
                                           .max_model_len = (size_t)max_len,
                                           .n_threads = (size_t)threads,
                                           .parse_special_tokens = parse_special};
    o.engine = (struct quern_engine_options){.max_num_seqs = (size_t)max_seqs,
                                             .max_num_batched_tokens = (size_t)batched,
                                             .max_waiting = (size_t)queue,
                                             .block_tokens = (size_t)block,
                                             .kv_cache_bytes = kv_bytes,
                                             .seed = seed >= 0 ? (uint64_t)seed + 1 : 0};
    o.host = host;
    o.port = (unsigned)port;
    o.uds = uds;
    o.root_path = root_path;
    o.served_names = names.v;
    o.n_served_names = names.n;
    o.api_keys = keys.v;
    o.n_api_keys = keys.n;
    o.api_key_all = key_scope == 1;
    o.allowed_origins = origins.v;
    o.n_allowed_origins = origins.n;
    o.allowed_methods = methods.v;
    o.n_allowed_methods = methods.n;
    o.allowed_headers = headers.v;
    o.n_allowed_headers = headers.n;
    o.max_head_bytes = (size_t)head_bytes;
    o.max_headers = (size_t)header_count;
    o.max_body_bytes = body_bytes;
    o.keep_alive_ms = keep_alive_given ? (unsigned)(keep_alive_s * 1e3) : o.keep_alive_ms;
    o.shutdown_ms = (unsigned)(shutdown_s * 1e3);
    o.sse_ping_s = (unsigned)ping_s;
    o.max_n = max_n;
    o.max_logprobs = max_logprobs;
    o.ignore_generation_config = gen_config != 0;
    o.override_generation_config = override_gen;
    o.default_chat_template_kwargs = template_kwargs;
    o.response_role = role;
    o.access_log = access_log;
    o.on_listening = on_listening;
    o.on_ready = on_ready;
    o.user = &start;
    struct qn_err err = {0};
    enum qn_status rc = qn_server_run(&o, &err);
    if (rc != QN_OK) {
        fprintf(stderr, "error: %s\n", err.msg);
        return QN_EXIT_FAILED;
    }
    return QN_EXIT_OK;
}
