#include "server/config_fanout.h"

/* The last choice of RUNTIME_FANOUT_DRIVER, behind those of enum fanout_kind. */
#define CHOICE_AUTO FANOUT_KIND_COUNT

enum fanout_kind config_fanout_kind(const struct config *config) {
    if (config->fanout_driver == CHOICE_AUTO)
        return *config->db_url ? FANOUT_POSTGRES_NOTIFY : FANOUT_MEMORY;
    return (enum fanout_kind)config->fanout_driver;
}

const char *config_fanout_url(const struct config *config) {
    bool is_postgres = config_fanout_kind(config) == FANOUT_POSTGRES_NOTIFY;
    return is_postgres && !*config->fanout_url ? config->db_url : config->fanout_url;
}
