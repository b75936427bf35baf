#include "cli/npy.h"

#include <errno.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

enum {
    HEADER_BYTES = 128
};

enum qn_status qn_npy_write_f32(const char *path, const float *data, size_t rows, size_t cols,
                                struct qn_err *err)
{
    enum qn_status rc = QN_OK;
    char tmp[4096];
    FILE *f = NULL;
    // Renaming would replace a device, a pipe or a link: those are written as they are.
    struct stat st;
    bool direct = lstat(path, &st) == 0 && !S_ISREG(st.st_mode);
    int n = snprintf(tmp, sizeof tmp, "%s%s", path, direct ? "" : ".part");
    if (n < 0 || (size_t)n >= sizeof tmp) {
        return qn_fail(err, QN_E_INVALID, "output path has more than %zu bytes", sizeof tmp - 6);
    }
    // Magic, version, header length, a Python dict padded with blanks to 128 bytes.
    char header[HEADER_BYTES];
    memset(header, ' ', sizeof header);
    memcpy(header, "\x93NUMPY\x01\x00", 8);
    header[8] = (char)(HEADER_BYTES - 10);
    header[9] = 0;
    char dict[HEADER_BYTES - 10];
    n = snprintf(dict, sizeof dict,
                 "{'descr': '<f4', 'fortran_order': False, 'shape': (%zu, %zu), }", rows, cols);
    memcpy(header + 10, dict, (size_t)n);
    header[HEADER_BYTES - 1] = '\n';

    f = fopen(tmp, "wb");
    if (f == NULL) {
        rc = qn_fail(err, QN_E_IO, "could not create: %s", strerror(errno));
        goto fail;
    }
    if (fwrite(header, 1, sizeof header, f) != sizeof header ||
        fwrite(data, sizeof *data * cols, rows, f) != rows) {
        rc = qn_fail(err, QN_E_IO, "could not write: %s", strerror(errno));
        goto fail;
    }
    int closed = fclose(f);
    f = NULL;
    if (closed != 0 || (!direct && rename(tmp, path) != 0)) {
        rc = qn_fail(err, QN_E_IO, "could not write: %s", strerror(errno));
        goto fail;
    }
    return QN_OK;
fail:
    if (f != NULL) {
        fclose(f);
    }
    if (!direct) {
        unlink(tmp);
    }
    return qn_err_context(err, rc, "file \"%s\"", path);
}
