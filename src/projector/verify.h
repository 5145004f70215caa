/* Checks of the store: of the whole log (hashes, links to the previous event, gaps, order of
 * cursors), of a sample of it, of the journals and of the documents. They change nothing.
 * Thread: that of the session, also beside a running server.
 * Memory: constant, whatever the store holds.
 * Errors: of the store when it cannot be read. Damage is a result, not an error.
 * Invariant: events after the start are not checked; a topic or a page of documents is read as of
 * one moment. */
#ifndef PROJECTOR_VERIFY_H
#define PROJECTOR_VERIFY_H

#include "store/store.h"

#define VERIFY_ID_MAX 512

/* The first fault. */
struct verify_break {
    char entity[VERIFY_ID_MAX]; /* "run:abc"; empty for a fault of no single entity */
    uint64_t seq;
    uint64_t log_id;
    const char *message; /* static text */
};

struct verify_options {
    void *user;
    /* May be NULL. */
    void (*on_progress)(void *user, uint64_t done, uint64_t total);
};

struct verify_result {
    uint64_t events;
    uint64_t entities;
    bool is_broken;
    struct verify_break broken;
};

MUST_CHECK enum status verify(struct store_session *session, const struct verify_options *options,
                              struct verify_result *result);

/* Checks some stretches of the log: for each event its hashes, its position and its link to the
 * previous event of its entity. The last stretch is always the end of the log, because a crash or a
 * disk without a working sync harms it first. The seed spreads the others over the rest. */
struct verify_sample {
    uint64_t stretch_count; /* at least 1 */
    uint64_t stretch_events;
    uint64_t seed;
};

MUST_CHECK enum status verify_sample(struct store_session *session,
                                     const struct verify_sample *sample,
                                     struct verify_result *result);

/* ---- the journals: holes, stray rows and altered rows ----------------------------------- */

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

/* ---- the documents: each is there, has its hash, and agrees with its checkpoint --------- */

/* Reads no event: a reprojection compares with the log. */

/* The damages that are named; the others are counted. */
#define DOCUMENT_CHECK_NAMED_MAX 100

struct document_check_options {
    void *user;
    /* May be NULL. message: static text. */
    void (*on_damage)(void *user, struct slice document_key, const char *message);
};

struct document_check_result {
    uint64_t documents;
    uint64_t damages;
};

/* session: for reading. */
MUST_CHECK enum status document_check(struct store_session *session,
                                      const struct document_check_options *options,
                                      struct document_check_result *result);

#endif
