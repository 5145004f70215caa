/* A selection: what a subscription to a summary topic asked for, of all that its principal may read
 * (`where`), and whether it gets only the newest frame of each document (`conflate_ms`).
 * Thread: any; it never changes.
 * Memory: one block with the bytes that its condition needs, counted by reference.
 * Errors: STATUS_OUT_OF_MEMORY.
 * Invariant: equal selections leave out the same frames, so their subscribers share pages. */
#ifndef DELIVERY_SELECTION_H
#define DELIVERY_SELECTION_H

#include <stdatomic.h>

#include "topic/where.h"

#define CONFLATE_MS_MAX 5000

struct selection {
    atomic_uint references;
    uint32_t conflate_ms; /* 0: every frame is sent */
    bool has_where;
    struct where where; /* with has_where, and of it where_size bytes */
};

/* where: NULL for all documents. *selection is NULL if nothing is asked for. */
MUST_CHECK enum status selection_make(struct selection **selection, const struct where *where,
                                      uint64_t conflate_ms);
struct selection *selection_ref(struct selection *selection);
void selection_unref(struct selection *selection);
/* Whether two selections, each NULL or not, give the same pages. */
bool selection_equal(const struct selection *a, const struct selection *b);
#define SELECTION_MISPLACED "where and conflate_ms are for the topics of summaries."
/* Whether the topic has documents, so that a selection may be asked for. */
bool selection_suits(struct slice topic);
/* Whether a document is in it; NULL has all. STATUS_INTERNAL_ERROR: it is no object. */
MUST_CHECK enum status selection_has_document(const struct selection *selection,
                                              struct slice payload, bool *has_document);

#endif
