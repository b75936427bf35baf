#include "base/log.h"

#include <stdarg.h>
#include <stdio.h>
#include <unistd.h>

static enum qn_log_level g_level = QN_LOG_INFO;

void qn_log_set_level(enum qn_log_level level)
{
    g_level = level;
}

enum qn_log_level qn_log_get_level(void)
{
    return g_level;
}

void qn_log(enum qn_log_level level, const char *fmt, ...)
{
    static const char *const tags[] = {"error: ", "warning: ", "", "debug: "};
    if (level > g_level) {
        return;
    }
    char text[2048];
    va_list ap;
    va_start(ap, fmt);
    vsnprintf(text, sizeof text, fmt, ap);
    va_end(ap);

    char line[2 * sizeof text];
    int head = snprintf(line, sizeof line, "quern: %s", tags[level]);
    size_t n = head > 0 ? (size_t)head : 0;
    for (const char *p = text; *p != '\0' && n + 5 < sizeof line; p++) {
        unsigned char c = (unsigned char)*p;
        if (c < 0x20 || c == 0x7f) {
            n += (size_t)snprintf(line + n, 5, "\\x%02x", c);
        } else {
            line[n++] = (char)c;
        }
    }
    line[n++] = '\n';
    ssize_t done = write(STDERR_FILENO, line, n);
    (void)done;
}
