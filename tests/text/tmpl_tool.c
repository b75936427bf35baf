// tmpl_tool: renders chat templates. Standard input has one JSON object a line:
//   {"template": TEXT, "context": {…}, "trusted": {…}, "now": SECONDS}
// Standard output has one for each: {"text": …, "plain": "0110…"} or {"error": …, "status": …}.

#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>

#include "base/buf.h"
#include "base/json.h"
#include "text/template.h"

static enum qn_status render(const json_t *req, struct qn_buf *text, struct qn_buf *plain,
                             struct qn_err *err)
{
    const json_t *source = json_object_get(req, "template");
    struct qn_tmpl *t = NULL;
    enum qn_status rc =
        qn_tmpl_compile(json_string_value(source), json_string_length(source), &t, err);
    if (rc == QN_OK) {
        rc =
            qn_tmpl_render(t, json_object_get(req, "context"), json_object_get(req, "trusted"),
                           json_integer_value(json_object_get(req, "now")), NULL, text, plain, err);
    }
    qn_tmpl_free(t);
    return rc;
}

static json_t *answer(const char *line, size_t n)
{
    struct qn_err err = {0};
    struct qn_buf text = {0}, plain = {0};
    json_t *req = NULL, *out;
    enum qn_status rc = qn_json_parse(line, n, 512, &req, &err);
    if (rc == QN_OK) {
        rc = render(req, &text, &plain, &err);
    }
    for (size_t i = 0; i < plain.len; i++) {
        plain.data[i] = plain.data[i] != 0 ? '1' : '0';
    }
    if (rc == QN_OK) {
        out = json_pack("{s:s%, s:s%}", "text", text.data != NULL ? text.data : "", text.len,
                        "plain", plain.data != NULL ? plain.data : "", plain.len);
    } else {
        out = json_pack("{s:s, s:s}", "error", err.msg, "status", qn_status_name(rc));
    }
    json_decref(req);
    qn_buf_done(&text);
    qn_buf_done(&plain);
    return out;
}

int main(void)
{
    char *line = NULL;
    size_t cap = 0;
    ssize_t n;
    int rc = 0;
    while ((n = getline(&line, &cap, stdin)) > 0 && rc == 0) {
        json_t *out = answer(line, (size_t)n);
        rc = out == NULL || json_dumpf(out, stdout, JSON_COMPACT) != 0 || putchar('\n') == EOF;
        fflush(stdout);
        json_decref(out);
    }
    free(line);
    return rc;
}
