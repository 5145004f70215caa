#include "delivery/selection.h"

#include <assert.h>
#include <stddef.h>
#include <stdlib.h>

#include "topic/topic_table.h"

enum status selection_make(struct selection **selection, const struct where *where,
                           uint64_t conflate_ms) {
    size_t where_bytes = where ? where_size(where) : 0;
    *selection = NULL;
    assert(conflate_ms <= CONFLATE_MS_MAX);
    if (!where && conflate_ms == 0)
        return STATUS_OK;
    struct selection *made = malloc(offsetof(struct selection, where) + where_bytes);
    if (!made)
        return STATUS_OUT_OF_MEMORY;
    atomic_init(&made->references, 1);
    made->conflate_ms = (uint32_t)conflate_ms;
    made->has_where = where != NULL;
    if (where)
        memcpy((char *)made + offsetof(struct selection, where), where, where_bytes);
    *selection = made;
    return STATUS_OK;
}

struct selection *selection_ref(struct selection *selection) {
    if (selection)
        atomic_fetch_add_explicit(&selection->references, 1, memory_order_relaxed);
    return selection;
}

void selection_unref(struct selection *selection) {
    if (!selection)
        return;
    unsigned before = atomic_fetch_sub_explicit(&selection->references, 1, memory_order_acq_rel);
    assert(before > 0);
    if (before == 1)
        free(selection);
}

bool selection_equal(const struct selection *a, const struct selection *b) {
    if (!a || !b)
        return a == b;
    return (a->conflate_ms > 0) == (b->conflate_ms > 0) && a->has_where == b->has_where &&
           (!a->has_where || where_equal(&a->where, &b->where));
}

bool selection_suits(struct slice topic) {
    return topic_has_documents_only(topic_kind_of(topic, NULL));
}

enum status selection_has_document(const struct selection *selection, struct slice payload,
                                   bool *has_document) {
    struct where_fields fields;
    *has_document = true;
    if (!selection || !selection->has_where)
        return STATUS_OK;
    if (where_fields_read(payload, &fields) != STATUS_OK)
        return STATUS_INTERNAL_ERROR;
    *has_document = where_matches(&selection->where, &fields);
    return STATUS_OK;
}
