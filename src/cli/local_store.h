/* Stores without a server, for the verbs that read or write one directly: the store of the data
 * folder, the check of its journals, and a move into another store.
 * Thread: main.
 * Memory: cli_store_close closes both the session and the store, also after an error.
 * Errors: an exit code other than EXIT_CODE_DONE comes after its error was printed, except if
 * is_in_use is set.
 * Invariant: opening never creates a store. */
#ifndef CLI_LOCAL_STORE_H
#define CLI_LOCAL_STORE_H

#include "cli/remote.h"
#include "projector/verify.h"
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
/* remote_query to the server that uses the store, or that --url names. If the server of a store in
 * use cannot be reached, the reason why the store was not opened is printed as well. */
MUST_CHECK int cli_store_ask_server(const struct cli_store *opened, struct remote *remote,
                                    const struct remote_options *options, const char *target,
                                    struct slice body);

/* Moves a store into another, for the verbs import and export. Prints the result; the exit code is
 * "no" if the move is refused. */
int cli_move(const char *source_url, const char *target_url, bool json);

#define JOURNAL_ADVICE                                                                             \
    "no event is lost: 'khala reproject --all --journal' makes the journals again from the log"

/* The check of the journals. Text: one line a damage. JSON: the members "journal_rows" and
 * "journal" of an open object. */
struct journal_report {
    bool json;
    struct journal_check_result result;
};

/* The errors of journal_check. Damage is printed, and is not an error. */
MUST_CHECK enum status journal_report_run(struct journal_report *report,
                                          struct store_session *session);

#endif
