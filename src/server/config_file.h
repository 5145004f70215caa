/* A file of settings: KEY=value lines, with the comments and quotes of systemd's EnvironmentFile.
 * Thread: main, before others start; read-only afterwards.
 * Memory: the struct holds the text, and names and values point into it. Owns no heap.
 * Errors: a message with the file's path and the line, and STATUS_INVALID_CONFIG.
 * Invariant: no name appears twice. A value never spans lines. */
#ifndef SERVER_CONFIG_FILE_H
#define SERVER_CONFIG_FILE_H

#include <stddef.h>

#include "spec/codes.h"

#define CONFIG_FILE_DEFAULT        "/etc/khala/khala.conf"
#define CONFIG_FILE_BYTES_MAX      65536
#define CONFIG_FILE_LINE_BYTES_MAX 2048
#define CONFIG_FILE_ROWS_MAX       256
#define CONFIG_FILE_PATH_MAX       512
#define CONFIG_ERROR_MAX           1024

struct config_error {
    char text[CONFIG_ERROR_MAX];
};

struct config_file_row {
    const char *name;
    const char *value;
    unsigned line; /* counted from 1 */
};

struct config_file {
    char path[CONFIG_FILE_PATH_MAX];
    char text[CONFIG_FILE_BYTES_MAX + 1];
    struct config_file_row rows[CONFIG_FILE_ROWS_MAX];
    size_t row_count;
};

/* Reads and parses the file. STATUS_SYSTEM_ERROR: it cannot be read; errno says why. */
MUST_CHECK enum status config_file_read(struct config_file *file, const char *path,
                                        struct config_error *error);
/* Parses the bytes in text, which it changes; path is set. */
MUST_CHECK enum status config_file_parse(struct config_file *file, size_t size,
                                         struct config_error *error);
/* NULL: the file, which may be NULL, does not set that name. */
const struct config_file_row *config_file_find(const struct config_file *file, const char *name);
/* Writes "PATH:LINE: …" into error and returns STATUS_INVALID_CONFIG. */
__attribute__((format(printf, 4, 5))) enum status config_file_refuse(const struct config_file *file,
                                                                     unsigned line,
                                                                     struct config_error *error,
                                                                     const char *format, ...);

#endif
