/* Repairs of the derived tables, inside one transaction of the caller.
 * Thread: that of the connection.
 * Memory: allocates only while it runs.
 * Errors: functions answer a status, with a sentence in the repair; the caller then rolls back.
 * Invariant: the log and the entities are never written. Each repair is recorded as drift. */
#ifndef STORE_POSTGRES_POSTGRES_HEAL_H
#define STORE_POSTGRES_POSTGRES_HEAL_H

#include "store/postgres/postgres.h"

struct postgres_repair {
    const struct postgres_store *store;
    PGconn *connection;
    uint64_t now_ms;
    char *error; /* of STORE_MESSAGE_MAX */
    bool is_changed;
    bool has_old_readers; /* payloads must be written whole */
    bool are_topics_made; /* the table of topics was rebuilt */
};

struct postgres_note {
    enum reason reason;
    struct slice subject; /* a topic or a table */
    uint64_t expected_seq;
    uint64_t actual_seq;
};

/* Runs statements made by printf, of numbers and constants. *result may be NULL; else the caller
 * clears it, with STATUS_OK only. Results are texts. */
MUST_CHECK enum status postgres_repair_run(struct postgres_repair *repair, PGresult **result,
                                           const char *format, ...)
    __attribute__((format(printf, 3, 4)));
/* Runs one statement with text parameters. */
MUST_CHECK enum status postgres_repair_ask(struct postgres_repair *repair, PGresult **result,
                                           const char *sql, const char *const *values,
                                           size_t count);
/* Records a repair as drift, in the log of the server and in the metrics. */
MUST_CHECK enum status postgres_repair_note(struct postgres_repair *repair,
                                            const struct postgres_note *note);
/* A number that no journal of this store has had. */
MUST_CHECK enum status postgres_repair_take_epoch(struct postgres_repair *repair, uint64_t *epoch);
/* A number of a result in texts. */
uint64_t postgres_repair_number(const PGresult *result, int row, int column);

/* Raises the floor of a topic behind its last hole and behind lost_seq (postgres_journal.c). */
MUST_CHECK enum status postgres_journal_raise_floor(struct postgres_repair *repair,
                                                    const char *topic, uint64_t lost_seq);
/* Adds the topics that are missing (postgres_topics.c). */
MUST_CHECK enum status postgres_heal_topics(struct postgres_repair *repair);

/* All repairs in a transaction of its own, if a table is damaged. */
MUST_CHECK enum status postgres_heal_damaged_tables(const struct postgres_store *store,
                                                    PGconn *connection, uint64_t now_ms,
                                                    struct store_message *message);

#endif
