#ifndef QN_BASE_LOG_H
#define QN_BASE_LOG_H

/// Log lines go to standard error, one per call: "LEVEL message". Only cli and server log, and the
/// loader through them; libraries return errors instead.
enum qn_log_level {
    QN_LOG_ERROR,
    QN_LOG_WARN,
    QN_LOG_INFO,
    QN_LOG_DEBUG
};

/// Set before threads start; default QN_LOG_INFO.
void qn_log_set_level(enum qn_log_level level);
enum qn_log_level qn_log_get_level(void);

/// One line; thread-safe (a single write). Control characters are escaped, so that text from
/// outside cannot forge lines.
void qn_log(enum qn_log_level level, const char *fmt, ...) __attribute__((format(printf, 2, 3)));

#endif
