/* The events of a batch: whether they continue the log and their entities, and their rows.
 *
 * The events of an entity have no gaps, and only the session with the writer role adds some. So the
 * session remembers the last event of each entity that it stored, and needs no query for the next
 * one. It forgets all of them with the tail. */
#include <stdlib.h>

#include "store/postgres/postgres.h"

/* What must hold of an event before it, by its place in the log. */
struct event_place {
    uint64_t entity_ref;
    uint64_t seq;
};

static int compare_places(const void *left, const void *right) {
    const struct event_place *a = left, *b = right;
    if (a->entity_ref != b->entity_ref)
        return a->entity_ref < b->entity_ref ? -1 : 1;
    return a->seq < b->seq ? -1 : a->seq > b->seq;
}

/* ---- heads ---- */

static struct postgres_head *head_of(const struct postgres_session *session, uint64_t entity_ref) {
    return &session->heads[entity_ref % POSTGRES_HEADS];
}

void postgres_forget_heads(struct postgres_session *session) {
    if (session->heads)
        memset(session->heads, 0, POSTGRES_HEADS * sizeof(*session->heads));
}

/* Without memory for them, each commit asks the server. */
void postgres_note_heads(struct postgres_session *session, const struct store_batch *batch) {
    if (!session->heads)
        session->heads = calloc(POSTGRES_HEADS, sizeof(*session->heads));
    for (size_t i = 0; session->heads && i < batch->event_count; i++)
        *head_of(session, batch->events[i].entity_ref) =
            (struct postgres_head){batch->events[i].entity_ref, batch->events[i].seq};
}

/* The event before this one is the last that this session stored for the entity. Anything else is
 * left to the server. */
static bool is_known(const struct postgres_session *session, const struct event_place *place) {
    if (!session->heads)
        return false;
    const struct postgres_head *head = head_of(session, place->entity_ref);
    return head->entity_ref == place->entity_ref && head->seq == place->seq - 1;
}

/* ---- order ---- */

enum status postgres_check_order(struct postgres_session *session,
                                 const struct store_batch *batch) {
    uint64_t log_id = session->tail.log_id;
    const struct uuid *cursor = &session->tail.cursor;
    for (size_t i = 0; i < batch->event_count; i++) {
        const struct store_event *event = &batch->events[i];
        if (event->log_id != log_id + 1)
            return postgres_contradicts(session, STATUS_SEQUENCE_CONFLICT, "the log ends at event",
                                        log_id);
        if (log_id > 0 && uuid_compare(&event->cursor, cursor) <= 0)
            return postgres_contradicts(session, STATUS_SEQUENCE_CONFLICT,
                                        "the cursor does not rise at event", event->log_id);
        log_id = event->log_id;
        cursor = &event->cursor;
    }
    return STATUS_OK;
}

/* Sends the statement, unless its arrays are empty. */
static enum status send_any(struct postgres_session *session) {
    return session->parameters[0].count > 0 ? postgres_pipeline_send(session) : STATUS_OK;
}

/* The events of one entity have no gap among themselves. */
enum status postgres_send_positions(struct postgres_session *session,
                                    const struct store_batch *batch, uint64_t *expected) {
    struct event_place *places = malloc(batch->event_count * sizeof(*places));
    enum status status = STATUS_OK;
    if (!places)
        return STATUS_OUT_OF_MEMORY;
    for (size_t i = 0; i < batch->event_count; i++)
        places[i] = (struct event_place){batch->events[i].entity_ref, batch->events[i].seq};
    qsort(places, batch->event_count, sizeof(*places), compare_places);
    postgres_begin(session, STATEMENT_COUNT_POSITIONS);
    *expected = 0;
    for (size_t i = 0; status == STATUS_OK && i < batch->event_count; i++) {
        bool is_first = i == 0 || places[i - 1].entity_ref != places[i].entity_ref;
        if (places[i].seq == 0 || (!is_first && places[i].seq != places[i - 1].seq + 1))
            status =
                postgres_contradicts(session, STATUS_SEQUENCE_CONFLICT,
                                     "no event of the entity precedes its event", places[i].seq);
        if (!is_first || places[i].seq <= 1 || is_known(session, &places[i]))
            continue;
        postgres_put_number(session, places[i].entity_ref);
        postgres_put_number(session, places[i].seq - 1);
        (*expected)++;
    }
    free(places);
    return status == STATUS_OK ? send_any(session) : status;
}

/* ---- rows ---- */

static bool is_supplied(const struct postgres_tail *tail, const struct store_event *event) {
    /* An id that another store minted counts as supplied, even where it is the cursor's. */
    return uuid_compare(&event->event_id, &event->cursor) != 0 ||
           !id_mark_may_be_minted(&tail->id_mark, &event->event_id);
}

/* An id is unique among supplied and minted ids together. The usual id needs no query. A minted id
 * is later than every supplied one. A supplied id that lacks the mark was not minted, and one that
 * is later than the last cursor was not minted yet. The queries see the rows of this batch. */
static enum status send_id_checks(struct postgres_session *session, const struct store_batch *batch,
                                  const struct uuid *max) {
    const struct uuid *last = &batch->events[batch->event_count - 1].cursor;
    postgres_begin(session, STATEMENT_FIND_SUPPLIED);
    for (size_t i = 0; i < batch->event_count; i++) {
        const struct store_event *event = &batch->events[i];
        if (!is_supplied(&session->tail, event) && uuid_compare(&event->event_id, max) <= 0)
            postgres_put_uuid(session, &event->event_id);
    }
    enum status status = send_any(session);
    postgres_begin(session, STATEMENT_FIND_MINTED);
    for (size_t i = 0; i < batch->event_count; i++) {
        const struct store_event *event = &batch->events[i];
        if (is_supplied(&session->tail, event) &&
            id_mark_may_be_minted(&session->tail.id_mark, &event->event_id) &&
            uuid_compare(&event->event_id, last) <= 0)
            postgres_put_uuid(session, &event->event_id);
    }
    return status == STATUS_OK ? send_any(session) : status;
}

enum status postgres_send_events(struct postgres_session *session, const struct store_batch *batch,
                                 struct uuid *max) {
    postgres_begin(session, STATEMENT_ADD_EVENTS);
    for (size_t i = 0; i < batch->event_count; i++)
        postgres_put_row(session, &batch->events[i]);
    enum status status = postgres_pipeline_send(session);
    *max = session->tail.client_id_max;
    postgres_begin(session, STATEMENT_ADD_EVENT_IDS);
    for (size_t i = 0; i < batch->event_count; i++) {
        const struct store_event *event = &batch->events[i];
        if (!is_supplied(&session->tail, event))
            continue;
        if (uuid_compare(&event->event_id, max) > 0)
            *max = event->event_id;
        postgres_put_row(session, event);
    }
    if (status == STATUS_OK)
        status = send_any(session);
    return status == STATUS_OK ? send_id_checks(session, batch, max) : status;
}
