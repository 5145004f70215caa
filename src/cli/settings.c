#include "cli/settings.h"

#include <errno.h>
#include <stdlib.h>

#include "server/unknown.h"

static struct config_file file;
static bool is_loaded;

enum status settings_file_load(const char *path, bool needs_all, struct config_error *error) {
    enum status status = config_file_read(&file, path ? path : CONFIG_FILE_DEFAULT, error);
    if (status == STATUS_SYSTEM_ERROR && !path &&
        (errno == ENOENT || errno == ENOTDIR || (errno == EACCES && !needs_all)))
        return STATUS_OK;
    if (status == STATUS_OK)
        status = config_unknown_refuse(&file, error);
    if (status != STATUS_OK)
        return STATUS_INVALID_CONFIG;
    is_loaded = true;
    return STATUS_OK;
}

const struct config_file *settings_file(void) {
    return is_loaded ? &file : NULL;
}

const char *settings_variable(const char *name) {
    const char *given = getenv(name);
    const struct config_file_row *row = config_file_find(settings_file(), name);
    return given || !row ? given : row->value;
}
