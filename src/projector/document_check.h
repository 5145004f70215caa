/* The check of the documents: each is there, has its hash, and agrees with its checkpoint.
 * The thread of the session, also beside a running server: each page is read as of one moment.
 * Memory is constant: one document at a time.
 * Errors of the store when it cannot be read. Damage is a result, not an error.
 * Changes nothing, and reads no event: a reprojection compares with the log. */
#ifndef PROJECTOR_DOCUMENT_CHECK_H
#define PROJECTOR_DOCUMENT_CHECK_H

#include "store/store.h"

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
