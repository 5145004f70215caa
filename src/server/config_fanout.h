/* The fan-out driver of the settings, where its choice depends on the store.
 * Any thread; pure functions over the settings.
 * Texts are those of the settings.
 * Cannot fail: config_load checks the URL.
 * On PostgreSQL nodes wake each other up without any other setting. */
#ifndef SERVER_CONFIG_FANOUT_H
#define SERVER_CONFIG_FANOUT_H

#include "fanout/fanout.h"
#include "server/config_values.h"

enum fanout_kind config_fanout_kind(const struct config *config);
/* May hold a password. Empty: not given. */
const char *config_fanout_url(const struct config *config);

#endif
