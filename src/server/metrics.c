#include "server/metrics.h"

#include <stdio.h>
#include <string.h>
#include <sys/resource.h>
#include <unistd.h>

static const char *const route_names[QN_N_ROUTES] = {
    "/v1/chat/completions",
    "/v1/completions",
    "/tokenize",
    "/detokenize",
    "/v1/models",
    "/v1/models/{model}",
    "/health",
    "/ping",
    "/version",
    "/metrics",
    "/load",
    "none",
};

// 1, 2, 5 times powers of ten up to the context.
static void token_buckets(struct quern_hist *h, size_t max)
{
    static const double steps[] = {1, 2, 5};
    *h = (struct quern_hist){0};
    for (double ten = 1; h->n < QUERN_HIST_MAX; ten *= 10) {
        for (size_t i = 0; i < 3 && h->n < QUERN_HIST_MAX; i++) {
            double le = steps[i] * ten;
            if (le > (double)max) {
                return;
            }
            h->le[h->n++] = le;
        }
    }
}

static void fixed_buckets(struct quern_hist *h, const double *le, size_t n)
{
    *h = (struct quern_hist){.n = n};
    memcpy(h->le, le, n * sizeof *le);
}

void qn_metrics_init(struct qn_metrics *m, size_t max_model_len)
{
    static const double choices[] = {1, 2, 5, 10, 20};
    static const double seconds[] = {0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 300};
    *m = (struct qn_metrics){0};
    fixed_buckets(&m->n_choices, choices, 5);
    token_buckets(&m->max_tokens, max_model_len);
    token_buckets(&m->max_generated, max_model_len);
    token_buckets(&m->prefill_computed, max_model_len);
    for (size_t i = 0; i < QN_N_ROUTES; i++) {
        fixed_buckets(&m->http[i].seconds, seconds, sizeof seconds / sizeof seconds[0]);
    }
}

void qn_metrics_hist(struct quern_hist *h, double v)
{
    size_t i = 0;
    while (i < h->n && v > h->le[i]) {
        i++;
    }
    h->count[i]++;
    h->sum += v;
}

void qn_metrics_http(struct qn_metrics *m, enum qn_route route, int method, int status,
                     double seconds, uint64_t bytes_in, uint64_t bytes_out)
{
    int hundreds = status / 100;
    m->http[route].by_status[method][hundreds >= 1 && hundreds <= 5 ? hundreds : 0]++;
    qn_metrics_hist(&m->http[route].seconds, seconds);
    m->http[route].bytes_in += (double)bytes_in;
    m->http[route].bytes_out += (double)bytes_out;
    m->http[route].n++;
}

struct writer {
    struct qn_buf *out;
    char labels[768]; // model_name and engine
};

// The exposition format escapes backslash, quote and newline.
static void escape_label(const char *s, char *out, size_t cap)
{
    size_t n = 0;
    for (; *s != '\0' && n + 3 < cap; s++) {
        if (*s == '\\' || *s == '"' || *s == '\n') {
            out[n++] = '\\';
        }
        out[n++] = *s == '\n' ? 'n' : *s;
    }
    out[n] = '\0';
}

static void family(struct writer *w, const char *name, const char *type, const char *help)
{
    qn_buf_printf(w->out, "# HELP %s %s\n# TYPE %s %s\n", name, help, name, type);
}

static void number(struct writer *w, double v)
{
    char text[40];
    snprintf(text, sizeof text, "%.17g", v);
    char shorter[40];
    snprintf(shorter, sizeof shorter, "%.9g", v);
    double back = 0;
    qn_buf_puts(w->out, sscanf(shorter, "%lf", &back) == 1 && back == v ? shorter : text);
}

static void sample(struct writer *w, const char *name, const char *more, double v)
{
    qn_buf_printf(w->out, "%s{%s%s} ", name, w->labels, more);
    number(w, v);
    qn_buf_putc(w->out, '\n');
}

static void gauge(struct writer *w, const char *name, const char *help, double v)
{
    family(w, name, "gauge", help);
    sample(w, name, "", v);
}

static void counter(struct writer *w, const char *name, const char *help, double v)
{
    char total[128];
    snprintf(total, sizeof total, "%s_total", name);
    family(w, total, "counter", help);
    sample(w, total, "", v);
}

static void hist_samples(struct writer *w, const char *name, const char *labels,
                         const struct quern_hist *h)
{
    uint64_t sum = 0;
    for (size_t i = 0; i <= h->n; i++) {
        sum += h->count[i];
        qn_buf_printf(w->out, "%s_bucket{%s,le=\"", name, labels);
        if (i < h->n) {
            number(w, h->le[i]);
            if (h->le[i] == (double)(uint64_t)h->le[i]) {
                qn_buf_puts(w->out, ".0");
            }
        } else {
            qn_buf_puts(w->out, "+Inf");
        }
        qn_buf_printf(w->out, "\"} %llu\n", (unsigned long long)sum);
    }
    qn_buf_printf(w->out, "%s_count{%s} %llu\n%s_sum{%s} ", name, labels, (unsigned long long)sum,
                  name, labels);
    number(w, h->sum);
    qn_buf_putc(w->out, '\n');
}

static void hist(struct writer *w, const char *name, const char *help, const struct quern_hist *h)
{
    family(w, name, "histogram", help);
    hist_samples(w, name, w->labels, h);
}

static void write_engine(struct writer *w, const struct qn_metrics *m, const struct quern_stats *s,
                         const struct qn_metrics_labels *l)
{
    char more[128];
    gauge(w, "vllm:num_requests_running", "Requests in the running batch.", (double)s->running);
    gauge(w, "vllm:num_requests_waiting", "Requests waiting for admission.", (double)s->waiting);
    family(w, "vllm:num_requests_waiting_by_reason", "gauge", "Waiting requests by reason.");
    sample(w, "vllm:num_requests_waiting_by_reason", ",reason=\"capacity\"", (double)s->waiting);
    sample(w, "vllm:num_requests_waiting_by_reason", ",reason=\"deferred\"", 0);
    gauge(w, "vllm:kv_cache_usage_perc", "Used share of the KV blocks, 0 to 1.", s->kv_usage);
    family(w, "vllm:engine_sleep_state", "gauge", "1 for the state the engine is in.");
    sample(w, "vllm:engine_sleep_state", ",sleep_state=\"awake\"", 1);
    sample(w, "vllm:engine_sleep_state", ",sleep_state=\"weights_offloaded\"", 0);
    sample(w, "vllm:engine_sleep_state", ",sleep_state=\"discard_all\"", 0);
    family(w, "vllm:cache_config_info", "gauge", "KV cache settings as labels.");
    snprintf(more, sizeof more, ",block_size=\"%zu\",num_gpu_blocks=\"%zu\"", s->block_tokens,
             s->kv_blocks_total);
    sample(w, "vllm:cache_config_info", more, 1);
    counter(w, "vllm:prompt_tokens", "Prompt tokens processed.", (double)s->prompt_tokens);
    counter(w, "vllm:generation_tokens", "Tokens generated.", (double)s->generation_tokens);
    family(w, "vllm:prompt_tokens_by_source_total", "counter", "Prompt tokens by where from.");
    sample(w, "vllm:prompt_tokens_by_source_total", ",source=\"local_compute\"",
           (double)m->computed_tokens);
    sample(w, "vllm:prompt_tokens_by_source_total", ",source=\"local_cache_hit\"",
           (double)m->cached_tokens);
    sample(w, "vllm:prompt_tokens_by_source_total", ",source=\"external_kv_transfer\"", 0);
    counter(w, "vllm:prompt_tokens_cached", "Prompt tokens taken from the prefix cache.",
            (double)m->cached_tokens);
    counter(w, "vllm:num_preemptions", "Requests preempted.", (double)s->preemptions);
    family(w, "vllm:request_success_total", "counter", "Finished requests by reason.");
    sample(w, "vllm:request_success_total", ",finished_reason=\"stop\"", (double)s->finished_stop);
    sample(w, "vllm:request_success_total", ",finished_reason=\"length\"",
           (double)s->finished_length);
    sample(w, "vllm:request_success_total", ",finished_reason=\"abort\"",
           (double)s->finished_abort);
    sample(w, "vllm:request_success_total", ",finished_reason=\"error\"",
           (double)s->finished_error);
    sample(w, "vllm:request_success_total", ",finished_reason=\"repetition\"", 0);
    hist(w, "vllm:time_to_first_token_seconds", "Arrival to first token.", &s->ttft_s);
    hist(w, "vllm:inter_token_latency_seconds", "Gap between a request's steps.", &s->itl_s);
    hist(w, "vllm:request_time_per_output_token_seconds",
         "Mean time per token after the first, per request.", &s->tpot_s);
    hist(w, "vllm:e2e_request_latency_seconds", "Arrival to end.", &s->e2e_s);
    hist(w, "vllm:request_queue_time_seconds", "Time waiting.", &s->queue_s);
    hist(w, "vllm:request_inference_time_seconds", "Time running.", &s->inference_s);
    hist(w, "vllm:request_prefill_time_seconds", "Time in prefill.", &s->prefill_s);
    hist(w, "vllm:request_decode_time_seconds", "Time in decode.", &s->decode_s);
    hist(w, "vllm:request_prompt_tokens", "Prompt tokens per request.", &s->prompt_len);
    hist(w, "vllm:request_generation_tokens", "Generated tokens per request.", &s->generation_len);
    hist(w, "vllm:request_max_num_generation_tokens", "Longest choice of a request, in tokens.",
         &m->max_generated);
    hist(w, "vllm:request_params_max_tokens", "max_tokens in force per request.", &m->max_tokens);
    hist(w, "vllm:request_params_n", "Choices asked for per request.", &m->n_choices);
    hist(w, "vllm:request_prefill_kv_computed_tokens",
         "Prompt tokens computed, cached ones left out, per request.", &m->prefill_computed);
    hist(w, "vllm:iteration_tokens_total", "Tokens per engine step.", &s->step_tokens);
    if (l->legacy_names) {
        gauge(w, "vllm:gpu_cache_usage_perc", "Old name of kv_cache_usage_perc.", s->kv_usage);
        hist(w, "vllm:time_per_output_token_seconds", "Old name of inter_token_latency_seconds.",
             &s->itl_s);
    }
    hist(w, "quern_step_seconds", "Duration of an engine step.", &s->step_s);
    counter(w, "quern_steps", "Engine steps.", (double)s->steps);
}

static void write_http(struct writer *w, const struct qn_metrics *m)
{
    static const char *const methods[] = {"GET", "POST", "other"};
    char more[160];
    family(w, "http_requests_total", "counter", "HTTP requests by handler, method and status.");
    for (size_t r = 0; r < QN_N_ROUTES; r++) {
        if (r >= QN_ROUTE_HEALTH && r <= QN_ROUTE_LOAD) {
            continue; // probes and scrapes would drown the rest
        }
        for (size_t i = 0; i < 3; i++) {
            for (int s = 2; s <= 5; s++) {
                if (m->http[r].by_status[i][s] > 0) {
                    qn_buf_printf(
                        w->out,
                        "http_requests_total{handler=\"%s\",method=\"%s\",status=\"%dxx\"}"
                        " %llu\n",
                        route_names[r], methods[i], s,
                        (unsigned long long)m->http[r].by_status[i][s]);
                }
            }
        }
    }
    family(w, "http_request_duration_seconds", "histogram", "Request to end of answer.");
    for (size_t r = 0; r < QN_ROUTE_HEALTH; r++) {
        snprintf(more, sizeof more, "handler=\"%s\"", route_names[r]);
        hist_samples(w, "http_request_duration_seconds", more, &m->http[r].seconds);
    }
    static const char *const sizes[] = {"http_request_size_bytes", "http_response_size_bytes"};
    for (int k = 0; k < 2; k++) {
        family(w, sizes[k], "summary", k == 0 ? "Bytes of request bodies." : "Bytes of answers.");
        for (size_t r = 0; r < QN_ROUTE_HEALTH; r++) {
            qn_buf_printf(w->out, "%s_count{handler=\"%s\"} %llu\n%s_sum{handler=\"%s\"} ",
                          sizes[k], route_names[r], (unsigned long long)m->http[r].n, sizes[k],
                          route_names[r]);
            number(w, k == 0 ? m->http[r].bytes_in : m->http[r].bytes_out);
            qn_buf_putc(w->out, '\n');
        }
    }
}

static void plain(struct writer *w, const char *name, const char *type, const char *help, double v)
{
    family(w, name, type, help);
    qn_buf_printf(w->out, "%s ", name);
    number(w, v);
    qn_buf_putc(w->out, '\n');
}

static void write_process(struct writer *w)
{
    struct rusage ru;
    if (getrusage(RUSAGE_SELF, &ru) == 0) {
        double cpu = (double)(ru.ru_utime.tv_sec + ru.ru_stime.tv_sec) +
                     (double)(ru.ru_utime.tv_usec + ru.ru_stime.tv_usec) * 1e-6;
        plain(w, "process_cpu_seconds_total", "counter", "User and system time.", cpu);
    }
    FILE *f = fopen("/proc/self/statm", "re");
    if (f != NULL) {
        unsigned long pages = 0, resident = 0;
        double page = (double)sysconf(_SC_PAGESIZE);
        if (fscanf(f, "%lu %lu", &pages, &resident) == 2) {
            plain(w, "process_virtual_memory_bytes", "gauge", "Address space.",
                  (double)pages * page);
            plain(w, "process_resident_memory_bytes", "gauge", "Memory in RAM.",
                  (double)resident * page);
        }
        fclose(f);
    }
    struct rlimit rl;
    if (getrlimit(RLIMIT_NOFILE, &rl) == 0) {
        plain(w, "process_max_fds", "gauge", "Limit of open descriptors.", (double)rl.rlim_cur);
    }
}

void qn_metrics_write(const struct qn_metrics *m, const struct quern_stats *stats,
                      const struct qn_metrics_labels *l, struct qn_buf *out)
{
    struct writer w = {.out = out};
    char name[512];
    escape_label(l->model_name != NULL ? l->model_name : "", name, sizeof name);
    snprintf(w.labels, sizeof w.labels, "model_name=\"%s\",engine=\"0\"", name);
    family(&w, "quern_build_info", "gauge", "Version, instruction set and threads as labels.");
    qn_buf_printf(out, "quern_build_info{version=\"%s\",isa=\"%s\",threads=\"%zu\"} 1\n",
                  l->version, l->isa != NULL ? l->isa : "", l->n_threads);
    if (stats != NULL) {
        write_engine(&w, m, stats, l);
        gauge(&w, "quern_weights_bytes", "Bytes of packed weights.", (double)l->weight_bytes);
        gauge(&w, "quern_kv_blocks_free", "KV blocks that hold nothing.",
              (double)stats->kv_blocks_free);
    }
    write_http(&w, m);
    write_process(&w);
}
