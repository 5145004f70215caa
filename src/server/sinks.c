#include "server/sinks.h"

#include <stdio.h>
#include <string.h>

enum sink_name {
    SINK_NAME_TABLES,
    SINK_NAME_NOOP,
    SINK_NAME_NATS,
    SINK_NAME_WEBHOOK,
    SINK_NAME_COUNT
};
static const char *const names[SINK_NAME_COUNT] = {"tables", "noop", "nats", "webhook"};

/* The order of the choices of RUNTIME_KHALA_SINK. */
enum { SINK_TABLES, SINK_NOOP, SINK_FANOUT };

/* A bit for each name of the settings. False: wrong gets a name that no sink has. */
static bool chosen(const struct config *config, unsigned *bits, struct slice *wrong) {
    struct slice list = slice_of(config->fanout_sinks);
    *bits = config->sink == SINK_TABLES ? 1u << SINK_NAME_TABLES : 0;
    while (config->sink == SINK_FANOUT && list.size > 0) {
        const char *comma = memchr(list.data, ',', list.size);
        struct slice name = {list.data, comma ? (size_t)(comma - list.data) : list.size};
        list = slice_from(list, name.size + (comma ? 1 : 0));
        while (name.size > 0 && name.data[0] == ' ')
            name = slice_from(name, 1);
        while (name.size > 0 && name.data[name.size - 1] == ' ')
            name.size--;
        unsigned i = 0;
        while (i < SINK_NAME_COUNT && !slice_equal(name, slice_of(names[i])))
            i++;
        *wrong = name;
        if (i == SINK_NAME_COUNT)
            return false;
        *bits |= 1u << i;
    }
    return true;
}

static bool has(const struct config *config, enum sink_name name) {
    unsigned bits = 0;
    struct slice wrong;
    return chosen(config, &bits, &wrong) && bits & 1u << name;
}

enum status sinks_check(const struct config *config, char *message, size_t message_size) {
    unsigned bits = 0;
    struct slice wrong;
    const char *reason = NULL;
    if (!chosen(config, &bits, &wrong)) {
        snprintf(message, message_size,
                 "RUNTIME_KHALA_FANOUT_SINKS: '%.*s' is not one of tables, noop, nats, webhook",
                 (int)wrong.size, wrong.data);
        return STATUS_INVALID_CONFIG;
    }
    unsigned relays = 1u << SINK_NAME_NATS | 1u << SINK_NAME_WEBHOOK;
    if (config->sink == SINK_FANOUT && bits == 0)
        reason = "RUNTIME_KHALA_SINK is fanout, and RUNTIME_KHALA_FANOUT_SINKS names no sink";
    else if (bits & relays && !(bits & 1u << SINK_NAME_TABLES))
        reason = "RUNTIME_KHALA_FANOUT_SINKS: nats and webhook get the documents from the tables; "
                 "add tables";
    else if (bits & 1u << SINK_NAME_NATS && !*config->sink_nats_url)
        reason = "RUNTIME_KHALA_FANOUT_SINKS names nats, and KHALA_SINK_NATS_URL is not set";
    else if (bits & 1u << SINK_NAME_WEBHOOK && !*config->sink_webhook_url)
        reason = "RUNTIME_KHALA_FANOUT_SINKS names webhook, and KHALA_SINK_WEBHOOK_URL is not set";
    if (!reason)
        return STATUS_OK;
    snprintf(message, message_size, "%s", reason);
    return STATUS_INVALID_CONFIG;
}

const struct sink *sinks_of_commit(const struct config *config) {
    return has(config, SINK_NAME_TABLES) ? &sink_tables : &sink_noop;
}

enum status sinks_start(struct sinks *sinks, const struct config *config, struct store *store,
                        struct writer *writer) {
    struct relay_options options = {
        .store = store,
        .policies = &config->policies,
        .projection_version = slice_of(config->projection_version),
        .writer = writer,
        .folder = config->data_dir,
    };
    enum status status = STATUS_OK;
    for (unsigned i = SINK_NAME_NATS; status == STATUS_OK && i < SINK_NAME_COUNT; i++) {
        if (!has(config, (enum sink_name)i))
            continue;
        status = i == SINK_NAME_NATS ? relay_nats_open(&options.target, config->sink_nats_url,
                                                       config->sink_nats_subject)
                                     : relay_webhook_open(&options.target, config->sink_webhook_url,
                                                          config->sink_webhook_key);
        if (status == STATUS_OK)
            status = relay_start(&sinks->relays[sinks->count], &options);
        if (status == STATUS_OK)
            sinks->count++;
    }
    return status;
}

void sinks_wake(const struct sinks *sinks) {
    for (size_t i = 0; i < sinks->count; i++)
        relay_wake(sinks->relays[i]);
}

void sinks_stop(struct sinks *sinks) {
    while (sinks->count > 0)
        relay_stop(sinks->relays[--sinks->count]);
}
