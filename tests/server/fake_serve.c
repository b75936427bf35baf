/// The real server on the stand-in engine: `fake_serve KEY=VALUE …`. Prints "listening ADDRESS" and
/// "ready" lines; the keys are below.

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "fail_alloc.h"
#include "fake_quern.h"
#include "server/server.h"

static void on_listening(void *user, const char *address)
{
    (void)user;
    printf("listening %s\n", address);
    fflush(stdout);
}

static void on_ready(void *user, const struct quern_model *model)
{
    (void)user;
    (void)model;
    printf("ready\n");
    fflush(stdout);
}

int main(int argc, char **argv)
{
    struct qn_server_options o;
    const char *keys[8], *names[8];
    fail_alloc_install();
    qn_server_options_init(&o);
    o.host = "127.0.0.1";
    o.port = 0;
    o.model.path = "dir/fake-model";
    o.on_listening = on_listening;
    o.on_ready = on_ready;
    o.api_keys = keys;
    o.served_names = names;
    for (int i = 1; i < argc; i++) {
        const char *eq = strchr(argv[i], '=');
        if (eq == NULL) {
            fprintf(stderr, "expected KEY=VALUE, found %s\n", argv[i]);
            return 2;
        }
        size_t n = (size_t)(eq - argv[i]);
        const char *v = eq + 1;
        unsigned u = (unsigned)strtoul(v, NULL, 10);
#define KEY(name) (strlen(name) == n && strncmp(argv[i], name, n) == 0)
        if (KEY("step_us")) {
            fake_config.step_us = u;
        } else if (KEY("load_ms")) {
            fake_config.load_ms = u;
        } else if (KEY("context")) {
            fake_config.context = u;
        } else if (KEY("bos")) {
            fake_config.bos = u != 0;
        } else if (KEY("no_template")) {
            fake_config.no_template = u != 0;
        } else if (KEY("fail_load")) {
            fake_config.fail_load = u != 0;
        } else if (KEY("max_num_seqs")) {
            o.engine.max_num_seqs = u;
        } else if (KEY("max_waiting")) {
            o.engine.max_waiting = u;
        } else if (KEY("deadline_ms")) {
            o.head_ms = o.body_ms = u;
        } else if (KEY("max_body")) {
            o.max_body_bytes = u;
        } else if (KEY("shutdown_ms")) {
            o.shutdown_ms = u;
        } else if (KEY("sse_ping_s")) {
            o.sse_ping_s = u;
        } else if (KEY("uds")) {
            o.uds = v;
        } else if (KEY("root_path")) {
            o.root_path = v;
        } else if (KEY("override")) {
            o.override_generation_config = v;
        } else if (KEY("kwargs")) {
            o.default_chat_template_kwargs = v;
        } else if (KEY("key") && o.n_api_keys < 8) {
            keys[o.n_api_keys++] = v;
        } else if (KEY("name") && o.n_served_names < 8) {
            names[o.n_served_names++] = v;
        } else {
            fprintf(stderr, "unknown key in %s\n", argv[i]);
            return 2;
        }
    }
    struct qn_err err = {0};
    enum qn_status rc = qn_server_run(&o, &err);
    if (rc != QN_OK) {
        fprintf(stderr, "%s\n", err.msg);
        return 1;
    }
    return 0;
}
