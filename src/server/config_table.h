/* The one table of settings: name, flag, type, place in struct config, default, bounds and help.
 * Thread: any; read-only.
 * Memory: static.
 * Errors: none.
 * Invariant: environment names, flags, checks, `khala config` and the documentation follow from the
 * rows. */
#ifndef SERVER_CONFIG_TABLE_H
#define SERVER_CONFIG_TABLE_H

#include "server/config_values.h"

enum setting_type {
    SETTING_TEXT,
    SETTING_OPTIONAL, /* text that may be left empty */
    SETTING_ORIGINS,  /* the same, a list of origins */
    SETTING_SECRET,   /* may be left empty */
    SETTING_ADDRESS,
    SETTING_NUMBER,
    SETTING_CHOICE,
    SETTING_FLAG,
};

struct setting {
    const char *name;
    const char *flag; /* NULL: environment only */
    enum setting_type type;
    size_t offset;
    const char *fallback;
    uint64_t min;
    uint64_t max;
    const char *choices; /* "text|json": the value is the index */
    const char *help;
};

extern const struct setting config_settings[];
extern const size_t config_setting_count;

#endif
