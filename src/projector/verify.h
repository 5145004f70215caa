/* Verification of the whole log: every payload against its hash, every hash against its event,
 * every link against the event before, every sequence for gaps, every cursor for order.
 * The thread of the session, which may be beside a running server: the log is checked up to where
 * it ended at the start. Memory is constant: two walks, one by log order, one by entity.
 * The store's own errors when it cannot be read. A broken log is not an error: it is the answer.
 * Nothing is changed. */
#ifndef PROJECTOR_VERIFY_H
#define PROJECTOR_VERIFY_H

#include "store/store.h"

#define VERIFY_ID_MAX 512

/* The first broken link. */
struct verify_break {
    char entity[VERIFY_ID_MAX]; /* "run:abc"; empty when it is not one entity's */
    uint64_t seq;
    uint64_t log_id;
    const char *what; /* a sentence */
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

/* The same of some stretches of the log, however long it is: of each event its hashes, its place
 * after the one before, and its link to the one before of its entity. The last stretch is always
 * the end of the log, which is what a crash or a disk that lies about syncing harms first, and what
 * the writer builds on. The others are spread over the rest, by the seed. */
struct verify_sample {
    uint64_t stretch_count; /* at least 1 */
    uint64_t stretch_events;
    uint64_t seed;
};

MUST_CHECK enum status verify_sample(struct store_session *session,
                                     const struct verify_sample *sample,
                                     struct verify_result *result);

#endif
