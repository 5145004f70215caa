/* The check of the journals: holes, stray rows and altered rows.
 * The thread of the session, also beside a running server: each topic is read as of one moment.
 * Memory is constant: one walk for each topic.
 * Errors of the store when it cannot be read. Damage is a result, not an error.
 * Changes nothing. */
#ifndef PROJECTOR_JOURNAL_CHECK_H
#define PROJECTOR_JOURNAL_CHECK_H

#include "store/store.h"

/* The damages of one topic that are named; the others are counted. */
#define JOURNAL_CHECK_NAMED_MAX 16

struct journal_damage {
    struct slice topic; /* or "topic_ref N" for a topic that does not exist */
    uint64_t seq;
    const char *message; /* static text */
};

struct journal_check_options {
    void *user;
    void (*on_damage)(void *user, const struct journal_damage *damage); /* may be NULL */
};

struct journal_check_result {
    uint64_t topics;
    uint64_t rows;
    uint64_t damages;
};

/* session: for reading. */
MUST_CHECK enum status journal_check(struct store_session *session,
                                     const struct journal_check_options *options,
                                     struct journal_check_result *result);

#endif
