/* Opens the store of the data directory, for verbs that read or write it directly.
 * Main thread only. cli_store_close closes both the session and the store, also after an error.
 * Before it returns another code than EXIT_CODE_DONE it prints the error.
 * It never creates a store. */
#ifndef CLI_OPEN_STORE_H
#define CLI_OPEN_STORE_H

#include "server/config.h"
#include "store/store.h"

struct cli_store {
    struct store *store;
    struct store_session *session;
    /* A server has the store, so it was not opened for writing. The message has the reason, which
     * was not printed. */
    bool is_in_use;
    struct store_message message;
};

/* STORE_READ works beside a running server; STORE_WRITE does not, and sets is_in_use. */
int cli_store_open(const struct config *config, enum store_mode mode, struct cli_store *opened);
void cli_store_close(struct cli_store *opened);

#endif
