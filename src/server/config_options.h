/* The settings in the form that the parts of the server need: one small struct for each part.
 * Thread: any; pure functions over the settings.
 * Memory: the texts belong to the config, which outlives the parts.
 * Errors: none; config_load checks the values.
 * Invariant: no folder below server/ uses struct config. */
#ifndef SERVER_CONFIG_OPTIONS_H
#define SERVER_CONFIG_OPTIONS_H

#include "authority/quota.h"
#include "cluster/fanout.h"
#include "http/http.h"
#include "server/config_values.h"

/* An empty certificate_file means no TLS. */
struct tls_options config_tls_options(const struct config *config);
struct gate_options config_gate_options(const struct config *config);
struct http_options config_http_options(const struct config *config);
/* The store: DB_URL, or else the data folder. It may hold a password. */
const char *config_store_url(const struct config *config);
/* Of owners without quotas of their own. */
struct quota_limits config_quota_limits(const struct config *config);
/* The largest item of a batch. */
uint64_t config_item_bytes_max(const struct config *config);
/* Whether the threshold of slow consumers was left to the replay budgets. */
bool config_lag_follows_budgets(const struct config *config);
/* On PostgreSQL nodes wake each other up without any other setting. */
enum fanout_kind config_fanout_kind(const struct config *config);
/* May hold a password. Empty: not given. */
const char *config_fanout_url(const struct config *config);

#endif
