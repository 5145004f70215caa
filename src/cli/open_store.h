/* The store of the data directory, for verbs that work on it themselves.
 * Main thread only. The session and the store are returned with cli_store_close, in any case.
 * An answer other than EXIT_CODE_DONE has been explained on standard error.
 * A verb never makes a store that was not there. */
#ifndef CLI_OPEN_STORE_H
#define CLI_OPEN_STORE_H

#include "server/config.h"
#include "store/store.h"

struct cli_store {
    struct store *store;
    struct store_session *session;
    /* Not opened for writing: a server has it. Why is in the message, and was not printed. */
    bool is_in_use;
    struct store_message message;
};

/* STORE_READ works beside a running server; STORE_WRITE does not, and sets is_in_use. */
int cli_store_open(const struct config *config, enum store_mode mode, struct cli_store *opened);
void cli_store_close(struct cli_store *opened);

#endif
