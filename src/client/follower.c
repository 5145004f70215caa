/* What the server sends about a topic is an input of the topic's machine (spec/client_states.json),
 * whose actions subscribe, deliver, apply a snapshot, reset and back off. Frames and resets go to
 * the application at once, or into the queue while it answers KHALA_LATER. Two positions move:
 * `received` covers what came from the server, `applied` what the application has applied; only
 * the second is stored. */
#include "client/follower.h"

#include <stdio.h>
#include <stdlib.h>

#include "base/clock.h"
#include "client/client_options.h"
#include "topic/stream_id.h"
#include "topic/topic_table.h"

/* A time of the future is the head. */
#define SINCE_HEAD "9999-12-31T00:00:00Z"
#define FORM_LEAN  "lean"
#define FORM_FULL  "full"
#define NO_VALUE   ((struct json_value){JSON_KIND_NULL, {"", 0}})

/* The data of the inputs of this file. */
struct start {
    struct position position;
    bool is_truncated;
};

static void set_reason(struct follower *follower, const char *reason) {
    snprintf(follower->reason, sizeof(follower->reason), "%s", reason);
}

static struct khala_position public_position(const struct position *position) {
    return (struct khala_position){position->epoch.text, position->seq};
}

/* ---- the queue -------------------------------------------------------------------------- */

/* NULL: the queue is empty. */
static const struct entry *entry_queue_first(const struct entry_queue *queue) {
    struct list_node *first = list_first(&queue->entries);
    return first ? container_of(first, struct entry, node) : NULL;
}

static void entry_queue_drop_first(struct entry_queue *queue) {
    struct entry *entry = container_of(list_pop_front(&queue->entries), struct entry, node);
    queue->frames -= entry->kind == ENTRY_FRAME;
    queue->bytes -= entry->bytes;
    free(entry);
}

static void entry_queue_clear(struct entry_queue *queue) {
    while (!list_is_empty(&queue->entries))
        entry_queue_drop_first(queue);
}

/* Two moves without a frame between them are one. */
static enum status entry_queue_push(struct entry_queue *queue, const struct entry *entry) {
    if (entry->kind == ENTRY_MOVE && !list_is_empty(&queue->entries)) {
        struct entry *last = container_of(list_last(&queue->entries), struct entry, node);
        if (last->kind == ENTRY_MOVE) {
            last->position = entry->position;
            return STATUS_OK;
        }
    }
    struct entry *made = malloc(sizeof(*made) + entry->json.size);
    if (!made)
        return STATUS_OUT_OF_MEMORY;
    *made = *entry;
    made->node = (struct list_node){0};
    made->bytes = sizeof(*made) + entry->json.size;
    if (entry->json.data) {
        memcpy((char *)(made + 1), entry->json.data, entry->json.size);
        made->json.data = (const char *)(made + 1);
    }
    list_push_back(&queue->entries, &made->node);
    queue->frames += entry->kind == ENTRY_FRAME;
    queue->bytes += made->bytes;
    return STATUS_OK;
}

/* ---- the stored position ---------------------------------------------------------------- */

static void save(struct follower *follower) {
    char text[STORED_POSITION_BYTES_MAX];
    if (!follower->is_unsaved || !follower->options->save || follower->follow.after)
        return;
    follower->is_unsaved = false;
    size_t size = stored_position_write(&follower->applied.position, text);
    if (follower->options->save(follower->options->user, follower->follow.topic, text, size) == 0)
        return;
    struct client_error error = client_error_make(CLIENT_POLICY_RETRY, "storage_failed",
                                                  "The position could not be stored.");
    follower->link->warn(follower->link->user, &error, follower->follow.topic);
}

void follower_load(struct follower *follower, bool is_live) {
    const struct khala_position *after = follower->follow.after;
    struct follower_place *received = &follower->received;
    set_reason(follower, "start");
    if (after) {
        received->position.seq = after->seq;
        received->is_known =
            !after->epoch ||
            topic_epoch_read(slice_of(after->epoch), &received->position.epoch) == STATUS_OK;
        if (!received->is_known)
            set_reason(follower, "position_unreadable");
    } else if (follower->options->load && !follower->follow.from_start) {
        char text[STORED_POSITION_BYTES_MAX];
        int size = follower->options->load(follower->options->user, follower->follow.topic, text,
                                           sizeof(text));
        if (size > 0 && (size_t)size <= sizeof(text))
            received->is_known =
                stored_position_read((struct slice){text, (size_t)size}, &received->position);
        if (size != 0 && !received->is_known)
            set_reason(follower, "position_unreadable");
        struct client_error error = client_error_make(CLIENT_POLICY_RETRY, "storage_failed",
                                                      "The stored position could not be read.");
        if (size < 0)
            follower->link->warn(follower->link->user, &error, follower->follow.topic);
    }
    follower->applied = follower->received;
    if (strcmp(follower->reason, "start") != 0 || received->is_known)
        follower->since = NULL;
    machine_give(&follower->machine, TOPIC_INPUT_LOADED, NULL);
    if (is_live)
        machine_give(&follower->machine, TOPIC_INPUT_CONNECTED, NULL);
}

/* ---- the application -------------------------------------------------------------------- */

/* Passes the entry to the application. False: it did not apply it. */
static bool apply(struct follower *follower, const struct entry *entry) {
    const struct khala_follow *follow = &follower->follow;
    enum khala_result result = KHALA_OK;
    if (entry->kind == ENTRY_FRAME) {
        const struct json_value object = {JSON_KIND_OBJECT, entry->json};
        struct json_field fields[] = {{.name = SLICE("kind")}, {.name = SLICE("payload")}};
        struct khala_frame frame = {.topic = follow->topic,
                                    .seq = entry->position.seq,
                                    .json = {entry->json.data, entry->json.size},
                                    .position = public_position(&entry->position)};
        if (json_read_members(object, fields, 2) == STATUS_OK) {
            struct slice kind = fields[0].value.raw, payload = fields[1].value.raw;
            frame.kind = (struct khala_text){kind.data, kind.size};
            frame.payload = (struct khala_text){payload.data, payload.size};
        }
        result = follow->frame(follow->user, &frame);
    } else if (entry->kind == ENTRY_RESET && follow->reset) {
        const struct khala_reset reset = {.topic = follow->topic,
                                          .reason = entry->reason,
                                          .from_seq = entry->position.seq + 1,
                                          .truncated = entry->is_truncated,
                                          .documents = {entry->json.data, entry->json.size},
                                          .position = public_position(&entry->position)};
        result = follow->reset(follow->user, &reset);
    } else if (entry->kind == ENTRY_RESET &&
               (strcmp(entry->reason, "start") != 0 || entry->is_truncated || entry->json.data)) {
        follower->error = client_error_make(CLIENT_POLICY_TOPIC_FINAL, "reset_unhandled",
                                            "The history of the topic begins anew, and the "
                                            "application has no reset function.");
        machine_give(&follower->machine, TOPIC_INPUT_FINAL, &follower->error);
        result = KHALA_LATER;
    }
    follower->is_held = result == KHALA_LATER;
    if (follower->is_held)
        return false;
    follower->applied = (struct follower_place){true, entry->position};
    follower->is_unsaved = true;
    return true;
}

/* The last call. Entries that arrived before an error come before it. */
static void finish(struct follower *follower) {
    if (!follower->is_over || follower->is_finished || entry_queue_first(&follower->queue))
        return;
    follower->is_finished = true;
    save(follower);
    const struct khala_error error = client_error_shown(&follower->error, follower->follow.topic);
    if (follower->follow.ended)
        follower->follow.ended(follower->follow.user, follower->has_error ? &error : NULL);
    follower->link->finished(follower->link->user, follower);
}

static enum status put(struct follower *follower, const struct entry *entry) {
    if (follower->is_over)
        return STATUS_OK;
    if (!follower->is_held && !entry_queue_first(&follower->queue) && apply(follower, entry))
        return STATUS_OK;
    return entry_queue_push(&follower->queue, entry);
}

/* Whether less than that part of the queue is used. An empty queue has room, however short it is.
 */
static bool has_room(const struct follower *follower, size_t part) {
    return follower->queue.frames * part < follower->options->queue_frames_max &&
           follower->queue.bytes < CLIENT_QUEUE_BYTES_MAX / part;
}

static void report_caught_up(struct follower *follower) {
    if (!follower->has_caught_up || follower->is_over || entry_queue_first(&follower->queue))
        return;
    follower->has_caught_up = false;
    if (follower->follow.caught_up)
        follower->follow.caught_up(follower->follow.user);
}

void follower_abandon(struct follower *follower) {
    entry_queue_clear(&follower->queue);
    finish(follower);
}

void follower_next(struct follower *follower) {
    follower->is_held = false;
    const struct entry *entry;
    while (!follower->is_held && (entry = entry_queue_first(&follower->queue)))
        if (apply(follower, entry))
            entry_queue_drop_first(&follower->queue);
    save(follower);
    report_caught_up(follower);
    if (follower->machine.state == TOPIC_STATE_PAUSED && has_room(follower, 2))
        machine_give(&follower->machine, TOPIC_INPUT_DRAINED, NULL);
    finish(follower);
}

/* ---- actions ---------------------------------------------------------------------------- */

static void clear_parts(struct follower *follower) {
    buffer_release(&follower->documents);
    follower->has_parts = false;
    follower->next_part = 0;
}

static enum status restart(struct follower *follower, const struct position *position,
                           bool is_truncated, struct slice documents) {
    struct entry entry = {.kind = ENTRY_RESET,
                          .position = *position,
                          .json = documents,
                          .is_truncated = is_truncated};
    snprintf(entry.reason, sizeof(entry.reason), "%s",
             *follower->reason ? follower->reason : "start");
    enum status status = put(follower, &entry);
    if (status != STATUS_OK)
        return status;
    set_reason(follower, "");
    follower->since = NULL;
    recent_clear(&follower->recent);
    follower->received = (struct follower_place){true, *position};
    return STATUS_OK;
}

static enum status apply_snapshot(struct follower *follower) {
    struct buffer whole;
    buffer_init(&whole, CLIENT_SNAPSHOT_BYTES_MAX + 2);
    buffer_append_byte(&whole, '[');
    buffer_append_slice(&whole, buffer_slice(&follower->documents));
    enum status status = buffer_append_byte(&whole, ']');
    if (status == STATUS_OK)
        status = restart(follower, &follower->parts_position, false, buffer_slice(&whole));
    buffer_release(&whole);
    clear_parts(follower);
    return status;
}

static enum status keep_part(struct follower *follower, const struct snapshot_part *part) {
    struct json_iterator documents = json_iterate(part->documents);
    struct json_value document;
    if (!follower->has_parts)
        follower->parts_position = part->position;
    follower->has_parts = true;
    follower->next_part++;
    while (json_next_element(&documents, &document)) {
        if (follower->documents.size > 0)
            buffer_append_byte(&follower->documents, ',');
        buffer_append_slice(&follower->documents, document.raw);
    }
    return buffer_status(&follower->documents);
}

/* What identifies a frame: the key and version of a document, the id of an event. */
struct identity {
    struct slice key; /* size 0: nothing does */
    uint64_t version;
};

static struct identity identity_of(struct json_value frame) {
    enum { KIND, EVENT_ID, DOC_KEY, DOC_VERSION, COUNT };
    struct json_field fields[COUNT] = {{.name = SLICE("kind")},
                                       {.name = SLICE("event_id")},
                                       {.name = SLICE("doc_key")},
                                       {.name = SLICE("doc_version")}};
    struct identity identity = {.version = 0};
    struct slice kind;
    if (json_read_members(frame, fields, COUNT) != STATUS_OK)
        return identity;
    bool is_document =
        json_string_slice(fields[KIND].value, &kind) &&
        (slice_ends(kind, SLICE("_summary")) || slice_equal(kind, SLICE("removed"))) &&
        fields[DOC_KEY].value.kind == JSON_KIND_STRING;
    struct json_value key = fields[is_document ? DOC_KEY : EVENT_ID].value;
    if (key.kind == JSON_KIND_STRING)
        identity.key = key.raw;
    if (is_document)
        (void)json_u64(fields[DOC_VERSION].value, UINT64_MAX, &identity.version);
    return identity;
}

/* Passes on the frames after the position, and moves it. A frame is remembered after it was passed
 * on: a failure between the two repeats it, and never loses it. */
static enum status deliver(struct follower *follower, const struct range *range) {
    struct json_iterator frames = json_iterate(range->frames);
    uint64_t from = follower->received.position.seq;
    struct json_value frame;
    enum status status = STATUS_OK;
    while (!follower->is_over && json_next_element(&frames, &frame)) {
        struct frame_span span = range_frame_span(frame);
        const struct entry entry = {
            .kind = ENTRY_FRAME, .position = {span.seq, range->epoch}, .json = frame.raw};
        if (entry.position.seq <= from)
            continue;
        /* The range of a folded frame is new, and its event_id is that of the last event alone. */
        struct identity identity =
            span.is_folded ? (struct identity){.version = 0} : identity_of(frame);
        uint64_t now = clock_mono_now_ms();
        bool is_repeated = identity.key.size > 0 &&
                           recent_has(&follower->recent, identity.key, identity.version, now);
        if (!is_repeated)
            status = put(follower, &entry);
        if (status != STATUS_OK)
            return status;
        follower->received = (struct follower_place){true, entry.position};
        if (!is_repeated && identity.key.size > 0)
            status = recent_add(&follower->recent, identity.key, identity.version, now);
        if (status != STATUS_OK)
            return status;
    }
    if (range->through <= from)
        return STATUS_OK;
    const struct entry move = {.kind = ENTRY_MOVE, .position = {range->through, range->epoch}};
    bool is_behind = follower->applied.position.seq != range->through;
    if (is_behind || entry_queue_first(&follower->queue))
        status = put(follower, &move);
    if (status != STATUS_OK)
        return status;
    follower->received = (struct follower_place){true, move.position};
    follower->trips = 0;
    unsigned kept = 0;
    for (unsigned i = 0; i < follower->fault_count; i++)
        if (!follower->faults[i].is_gap)
            follower->faults[kept++] = follower->faults[i];
    follower->fault_count = kept;
    return STATUS_OK;
}

static void end(struct follower *follower, const struct client_error *error) {
    if (follower->is_over)
        return;
    follower->is_over = true;
    follower->has_error = error != NULL;
    if (error && error != &follower->error)
        follower->error = *error;
    bool is_stuck = error && strcmp(error->code, "reset_unhandled") == 0;
    if (!error || is_stuck)
        entry_queue_clear(&follower->queue); /* the application takes no more */
    follower->link->done(follower->link->user, follower);
    finish(follower);
}

static void act(void *user, unsigned action, const void *data) {
    struct follower *follower = user;
    const struct start *start = data;
    const struct client_error *error = data;
    struct client_error stale;
    enum status status = STATUS_OK;
    switch ((enum topic_action)action) {
    case TOPIC_ACTION_SUBSCRIBE:
        follower->link->subscribe(follower->link->user, follower);
        break;
    case TOPIC_ACTION_UNSUBSCRIBE:
        follower->link->unsubscribe(follower->link->user, follower);
        break;
    case TOPIC_ACTION_RESET:
        status = restart(follower, &start->position, start->is_truncated, (struct slice){NULL, 0});
        break;
    case TOPIC_ACTION_DISCARD:
        clear_parts(follower);
        break;
    case TOPIC_ACTION_KEEP:
        status = keep_part(follower, data);
        break;
    case TOPIC_ACTION_APPLY_SNAPSHOT:
        status = follower->failure == STATUS_OK ? apply_snapshot(follower) : STATUS_OK;
        break;
    case TOPIC_ACTION_DELIVER:
        status = deliver(follower, data);
        break;
    case TOPIC_ACTION_FORGET:
        follower->received.is_known = false;
        if (!*follower->reason)
            set_reason(follower, "gap");
        break;
    case TOPIC_ACTION_REPORT:
        stale = client_error_make(CLIENT_POLICY_RETRY, "repeatedly_stale",
                                  "The topic was stale again and again.");
        follower->link->warn(follower->link->user, &stale, follower->follow.topic);
        break;
    case TOPIC_ACTION_BACK_OFF:
        follower->retry_at_ms =
            clock_mono_now_ms() +
            back_off_ms(follower->trips++, error ? error->retry_after_ms : -1, back_off_chance(),
                        CLIENT_TOPIC_BASE_MS,
                        follower->is_pending ? CLIENT_PENDING_MAX_MS : CLIENT_BACK_OFF_MAX_MS);
        follower->link->wait(follower->link->user, follower->retry_at_ms);
        break;
    case TOPIC_ACTION_CANCEL:
        follower->retry_at_ms = 0;
        break;
    case TOPIC_ACTION_FAIL:
        end(follower, data);
        break;
    case TOPIC_ACTION_END:
        end(follower, NULL);
        break;
    }
    if (follower->failure == STATUS_OK)
        follower->failure = status;
}

static void changed(void *user) {
    (void)user;
}

/* ---- inputs ----------------------------------------------------------------------------- */

/* Gives an input whose actions may fail. */
static enum status give(struct follower *follower, enum topic_input input, const void *data) {
    follower->failure = STATUS_OK;
    machine_give(&follower->machine, input, data);
    save(follower);
    return follower->failure;
}

void follower_give(struct follower *follower, enum topic_input input,
                   const struct client_error *error) {
    machine_give(&follower->machine, input, error);
}

static bool is_streaming(const struct follower *follower) {
    return follower->machine.state == TOPIC_STATE_REPLAYING ||
           follower->machine.state == TOPIC_STATE_LIVE;
}

/* A stale position or a gap. Several within a minute trip the breaker. */
static enum status fault(struct follower *follower, bool is_gap, const char *reason) {
    uint64_t now = clock_mono_now_ms();
    unsigned kept = 0;
    if (follower->machine.state == TOPIC_STATE_JOINING && is_gap)
        return STATUS_OK;
    for (unsigned i = 0; i < follower->fault_count; i++)
        if (now - follower->faults[i].at_ms < CLIENT_FAULTS_MS)
            follower->faults[kept++] = follower->faults[i];
    if (!is_gap && *reason)
        set_reason(follower, reason);
    if (!is_gap)
        follower->since = NULL;
    if (kept + 1 < CLIENT_FAULTS_MAX) {
        follower->faults[kept] = (struct follower_fault){now, is_gap};
        follower->fault_count = kept + 1;
        return give(follower, is_gap ? TOPIC_INPUT_GAP : TOPIC_INPUT_STALE, NULL);
    }
    follower->fault_count = 0;
    if (!is_gap)
        follower->received.is_known = false;
    return give(follower, TOPIC_INPUT_TRIPPED, NULL);
}

void follower_stale(struct follower *follower, const char *reason) {
    /* No action of this input allocates. */
    if (fault(follower, false, reason) != STATUS_OK)
        follower->failure = STATUS_OK;
}

/* after: exclusive. */
static enum status give_start(struct follower *follower, const struct position *after,
                              bool is_truncated) {
    const struct start start = {.position = *after, .is_truncated = is_truncated};
    follower->is_pending = false;
    return give(follower, TOPIC_INPUT_STARTED, &start);
}

enum status follower_accepted(struct follower *follower, struct json_value epoch,
                              struct json_value resume_after) {
    struct topic_epoch read;
    struct position after;
    if (!follower->received.is_known && follower->since)
        return range_read_position(resume_after, epoch, &after)
                   ? give_start(follower, &after, false)
                   : STATUS_INVALID_MESSAGE;
    if (follower->received.is_known && follower->machine.state == TOPIC_STATE_JOINING &&
        range_read_epoch(epoch, &read))
        follower->received.position.epoch = read;
    return give(follower, TOPIC_INPUT_ACCEPTED, NULL);
}

/* What is appended from now on is after any time, and after the head. */
static void pend(struct follower *follower, const char *request_id) {
    struct client_error error =
        client_error_make(CLIENT_POLICY_RETRY, "topic_pending",
                          "The topic does not exist yet, or belongs to another owner. It begins "
                          "when it exists for this client.");
    client_error_set_request(&error, request_id);
    if (!follower->is_pending)
        follower->link->warn(follower->link->user, &error, follower->follow.topic);
    follower->is_pending = true;
    follower->since = NULL;
}

enum status follower_pending(struct follower *follower, struct json_value epoch) {
    pend(follower, "");
    return follower_accepted(follower, epoch, NO_VALUE);
}

/* Whether the topic is that of one run or worker. */
static bool is_of_entity(const struct follower *follower) {
    char text[CLIENT_TOPIC_BYTES_MAX];
    struct buffer topic = buffer_over(text, sizeof(text));
    struct slice id;
    if (address_topic(slice_of(follower->follow.topic), &topic) != STATUS_OK)
        return false;
    enum topic_kind kind = topic_kind_of(buffer_slice(&topic), &id);
    return kind == TOPIC_RUN_EVENTS || kind == TOPIC_WORKER_LIFECYCLE;
}

void follower_refused(struct follower *follower, const struct client_error *error) {
    enum topic_input input = TOPIC_INPUT_FINAL;
    /* An older server refuses a run or worker that does not exist as one of another owner. */
    if (strcmp(error->code, status_code(STATUS_OWNER_MISMATCH)) == 0 && is_of_entity(follower)) {
        pend(follower, error->request_id);
        input = TOPIC_INPUT_BUSY;
    }
    follower_give(follower, input, error);
}

enum status follower_started(struct follower *follower, struct json_value epoch, uint64_t from_seq,
                             bool is_truncated) {
    struct position after = {.seq = from_seq - 1};
    if (from_seq == 0 || !range_read_epoch(epoch, &after.epoch))
        return STATUS_INVALID_MESSAGE;
    const struct position *own = &follower->received.position;
    /* A start at the client's own position, such as 0, is a resume. */
    if (follower->received.is_known && range_is_same_epoch(&after.epoch, &own->epoch) &&
        own->seq == after.seq)
        return follower_accepted(follower, epoch, NO_VALUE);
    return give_start(follower, &after, is_truncated);
}

/* Some of the events of such a frame were applied, and the others stand in no other frame. */
static bool has_frame_around(const struct range *range, uint64_t seq) {
    struct json_iterator frames = json_iterate(range->frames);
    struct json_value frame;
    while (json_next_element(&frames, &frame)) {
        struct frame_span span = range_frame_span(frame);
        if (span.seq > seq)
            return span.first <= seq;
    }
    return false;
}

enum status follower_range(struct follower *follower, struct json_value body) {
    const struct range range = range_read(body);
    enum topic_input input = range.is_complete ? TOPIC_INPUT_CAUGHT_UP : TOPIC_INPUT_RANGE;
    enum status status = STATUS_OK;
    if (!is_streaming(follower))
        return give(follower, input, NULL);
    /* The topic exists now, and this is its beginning. */
    if (follower->is_pending && !follower->received.is_known && range.is_valid)
        status =
            give_start(follower, &(struct position){range.after, range.epoch}, range.after > 0);
    if (status != STATUS_OK)
        return status;
    /* A range continues the position. It may begin earlier, and then repeats frames. */
    const struct position *own = &follower->received.position;
    if (!range.is_valid || !follower->received.is_known ||
        !range_is_same_epoch(&range.epoch, &own->epoch) || range.after > own->seq ||
        (range.after < own->seq && has_frame_around(&range, own->seq)))
        return fault(follower, true, "");
    /* Lean frames of a server before 0.3 have no event_id. */
    if (!range.has_ids && strcmp(follower->form, FORM_LEAN) == 0) {
        follower->form = FORM_FULL;
        return fault(follower, true, "");
    }
    follower->is_pending = false;
    status = give(follower, input, &range);
    if (status == STATUS_OK && range.is_complete) {
        follower->has_caught_up = true;
        report_caught_up(follower);
    }
    if (status == STATUS_OK && !has_room(follower, 1))
        status = give(follower, TOPIC_INPUT_FULL, NULL);
    return status;
}

enum status follower_covered(struct follower *follower, struct json_value body) {
    const struct position *own = &follower->received.position;
    const struct range range = range_read_covered(body);
    if (!is_streaming(follower) || !follower->received.is_known || !range.is_valid ||
        !range_is_same_epoch(&range.epoch, &own->epoch))
        return STATUS_OK;
    /* A message before this one is missing. */
    if (range.after > own->seq)
        return fault(follower, true, "");
    return range.through > own->seq ? give(follower, TOPIC_INPUT_RANGE, &range) : STATUS_OK;
}

enum status follower_part(struct follower *follower, struct json_value body) {
    const struct snapshot_part part = range_read_part(body);
    const struct position *first = &follower->parts_position;
    bool is_next =
        part.is_valid && (!part.has_number || part.number == follower->next_part) &&
        (!follower->has_parts || (part.position.seq == first->seq &&
                                  strcmp(part.position.epoch.text, first->epoch.text) == 0));
    if (follower->machine.state == TOPIC_STATE_BOOTSTRAPPING && !is_next)
        return fault(follower, true, "");
    return give(follower, part.is_last ? TOPIC_INPUT_WHOLE : TOPIC_INPUT_PART, &part);
}

uint64_t follower_tick(struct follower *follower, uint64_t now) {
    recent_expire(&follower->recent, now);
    if (follower->retry_at_ms > 0 && follower->retry_at_ms <= now) {
        follower->retry_at_ms = 0;
        machine_give(&follower->machine, TOPIC_INPUT_TIMER, NULL);
    }
    return follower->retry_at_ms;
}

/* ---- making ----------------------------------------------------------------------------- */

enum status follower_make(struct follower **follower, const struct khala_follow *follow,
                          const struct follower_link *link, const struct khala_options *options) {
    const struct khala_position *after = follow->after;
    size_t size = client_text_size(follow->topic) + client_text_size(follow->replay) +
                  client_text_size(follow->since) + client_text_size(follow->where) +
                  (after ? sizeof(*after) + client_text_size(after->epoch) : 0);
    struct follower *made = calloc(1, sizeof(*made));
    char *texts = calloc(1, size + 1);
    if (!made || !texts) {
        free(made);
        free(texts);
        return STATUS_OUT_OF_MEMORY;
    }
    made->link = link;
    made->options = options;
    made->follow = *follow;
    made->texts = texts;
    /* The position first: it must be aligned. */
    if (after) {
        struct khala_position *copy = (struct khala_position *)(void *)texts;
        texts += sizeof(*copy);
        *copy = (struct khala_position){client_text_copy(&texts, after->epoch), after->seq};
        made->follow.after = copy;
    }
    made->follow.topic = client_text_copy(&texts, follow->topic);
    made->follow.replay = client_text_copy(&texts, follow->replay);
    made->follow.since = client_text_copy(&texts, follow->since);
    made->follow.where = client_text_copy(&texts, follow->where);
    made->form = follow->form && strcmp(follow->form, FORM_FULL) == 0 ? FORM_FULL : FORM_LEAN;
    made->follow.form = made->form;
    made->since = follow->from_head ? SINCE_HEAD : made->follow.since;
    made->machine = (struct machine){.table = &topic_machine,
                                     .state = TOPIC_STATE_LOADING,
                                     .user = made,
                                     .act = act,
                                     .changed = changed};
    recent_init(&made->recent);
    buffer_init(&made->documents, CLIENT_SNAPSHOT_BYTES_MAX);
    list_init(&made->queue.entries);
    *follower = made;
    return STATUS_OK;
}

void follower_free(struct follower *follower) {
    if (!follower)
        return;
    entry_queue_clear(&follower->queue);
    recent_release(&follower->recent);
    buffer_release(&follower->documents);
    free(follower->texts);
    free(follower);
}
