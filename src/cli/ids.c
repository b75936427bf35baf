#include "cli/cli.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

bool qn_cli_parse_ids(const char *text, size_t n_text, const char *what, int32_t **out_ids,
                      size_t *out_n)
{
    size_t n = 0;
    if (strlen(text) != n_text) {
        fprintf(stderr, "error: %s: byte %zu is NUL, expected integers\n", what, strlen(text));
        return false;
    }
    int32_t *ids = malloc((n_text / 2 + 1) * sizeof *ids); // at least two bytes per id
    if (ids == NULL) {
        fprintf(stderr, "error: %s: could not allocate memory\n", what);
        return false;
    }
    for (const char *p = text;;) {
        p += strspn(p, " \t\r\n,[]");
        if (*p == '\0') {
            break;
        }
        char *end = NULL;
        errno = 0;
        long v = strtol(p, &end, 10);
        if (end == p || errno != 0 || v < 0 || v > INT32_MAX || strchr(" \t\r\n,]", *end) == NULL) {
            fprintf(stderr,
                    "error: %s: found \"%.20s\", expected integers separated by commas or blanks\n",
                    what, p);
            free(ids);
            return false;
        }
        ids[n++] = (int32_t)v;
        p = end;
    }
    *out_ids = ids;
    *out_n = n;
    return true;
}
