/* The sinks of the projector by the settings: the tables, and relays to systems outside the store.
 * Thread: main, after the store is open; sinks_wake belongs to the writer's thread.
 * Memory: the relays. The texts of the settings outlive them.
 * Errors: sinks_check names the setting that is wrong.
 * Invariant: relays read the journal, which only the tables write: so they need that sink. */
#ifndef SERVER_SINKS_H
#define SERVER_SINKS_H

#include "delivery/relay/relay.h"
#include "projector/sink.h"
#include "server/config_values.h"

struct sinks {
    struct relay *relays[LABEL_SINK_COUNT];
    size_t count;
};

/* Checks the names and what they need. message gets the reason. */
MUST_CHECK enum status sinks_check(const struct config *config, char *message, size_t message_size);
/* The sink that writes in each commit. */
const struct sink *sinks_of_commit(const struct config *config);
MUST_CHECK enum status sinks_start(struct sinks *sinks, const struct config *config,
                                   struct store *store, struct writer *writer);
void sinks_wake(const struct sinks *sinks);
/* Before the writer stops. */
void sinks_stop(struct sinks *sinks);

#endif
