/* A subscribe request of the main dialect: the topics and the position in each, read from JSON and
 * resolved against the store.
 * Thread: read on the loop, resolved on the store pool, one after the other.
 * Memory: one block with copies of all names.
 * Errors: STATUS_BAD_SUBSCRIPTION for another shape or more cursors than there may be topics, and
 * for two different cursors of one topic, also under its two names; STATUS_BAD_TOPIC for a name
 * that cannot be a topic's; STATUS_LIMIT_REACHED for too many of them; STATUS_UNKNOWN_PARAMETER for
 * a field that where may not have; STATUS_OUT_OF_MEMORY.
 * Invariant: a topic that is named twice is subscribed once; a cursor of another topic is ignored.
 * The time is linear in the number of names. */
#ifndef DIALECT_PHOENIX_SUBSCRIBE_REQUEST_H
#define DIALECT_PHOENIX_SUBSCRIBE_REQUEST_H

#include "auth/grant.h"
#include "base/arena.h"
#include "base/map.h"
#include "delivery/selection.h"
#include "hub/frame.h"
#include "store/store.h"
#include "topic/position.h"
#include "topic/since.h"
#include "wire/json.h"

struct subscribe_stream;

struct subscribe_item {
    struct slice name;
    bool is_stream;
    struct slice topic;              /* known once resolved */
    struct subscribe_stream *stream; /* only while cursors are placed */
    bool has_cursor;
    struct position position; /* the cursor's */
    struct grant grant;       /* the principal's view of it, once entitled */
};

struct subscribe {
    struct arena arena;
    struct subscribe_item *items;
    size_t count;
    size_t looked_up; /* items that earlier slices resolved or entitled */
    bool is_resolved;
    bool is_entitled;
    struct map by_topic;  /* the items: of topics; all of them, once resolved */
    struct map by_stream; /* the streams, until resolved */
    bool bootstrap;
    bool frames; /* it wins over the form */
    bool replay_all;
    bool folds;
    bool has_since; /* holds for topics without a cursor */
    struct since since;
    enum frame_form form;
    struct selection *selection; /* where and conflate_ms; NULL: neither */
    uint64_t batch_size;
    struct topic_epoch epoch; /* holds for cursors without an epoch */
    /* Explains STATUS_BAD_SUBSCRIPTION and STATUS_UNKNOWN_PARAMETER; NULL: the message of the
     * status does. */
    const char *fault;
};

MUST_CHECK enum status subscribe_read(struct subscribe *subscribe, struct json_value payload,
                                      size_t topics_max);
/* Finds the topics of streams, OPENING_SLICE_TOPICS in a call; is_resolved: all of them. Afterwards
 * each topic is there once. */
MUST_CHECK enum status subscribe_resolve(struct subscribe *subscribe, struct store_session *store);
/* Fills in the grants of the items: what the principal may read of each topic, as far as the token
 * decides. As many in a call; is_entitled: all of them. */
void subscribe_entitle(struct subscribe *subscribe, const struct principal *principal);
/* Both at once for a request of few topics by their names. False: it has streams, which the store
 * must resolve, or it takes too long for a loop. */
MUST_CHECK bool subscribe_entitle_by_names(struct subscribe *subscribe,
                                           const struct principal *principal);
/* Whether it asks for that topic; once resolved, also by the name of its stream. */
bool subscribe_has_topic(const struct subscribe *subscribe, struct slice topic);
/* Before it is resolved. */
bool subscribe_has_stream(const struct subscribe *subscribe, struct slice stream);
void subscribe_release(struct subscribe *subscribe);

#endif
