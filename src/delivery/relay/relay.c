/* The relay's thread reads one page of each topic in turn and sends its frames one by one; a
 * position moves when the target has accepted the frame. A topic whose position cannot resume has
 * all its documents sent first, in a walk by entity. A document that the target refuses is a
 * suspect: if the target then takes others, it is held and the relay continues without it;
 * otherwise the relay waits and begins again with the suspect. Held documents are read and sent
 * again, with growing delays. The state is saved once a second and before the thread ends. */
#include "delivery/relay/relay.h"

#include <assert.h>
#include <errno.h>
#include <inttypes.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/limits.h"
#include "base/log.h"
#include "base/metrics.h"
#include "delivery/journal_read.h"
#include "delivery/repair.h"
#include "wire/object_writer.h"

#define IDLE_MS               1000
#define SAVE_MS               1000
#define DELAY_MS_MIN          100
#define DELAY_MS_MAX          10000
#define ANSWERED_DELAY_MS_MAX 1000 /* for a target that answers, and accepts nothing */
#define HELD_DELAY_MS_MIN     1000
#define HELD_DELAY_MS_MAX     60000
/* So many attempts in a row got no answer: the target may break on the message itself. */
#define SILENCES_MAX 5
/* Attempts to send held documents take at most a tenth of the relay's time. */
#define HELD_PAUSE_FACTOR    9
#define MESSAGE_ID_BYTES_MAX 384

struct document_page;

/* All documents, for a topic whose position cannot resume. */
struct relay_walk {
    bool is_under_way;
    struct position end; /* the position afterwards */
    uint64_t last_ref;   /* entities up to here were passed */
    uint64_t absent_ref; /* this entity really has no document */
};

/* How far the relay has read. */
struct relay_cursor {
    struct relay_positions positions;
    struct relay_walk walks[DOCUMENT_KIND_COUNT];
};

struct relay {
    struct relay_options options;
    pthread_t thread;
    pthread_mutex_t lock;
    pthread_cond_t changed;
    bool is_awake; /* under lock, as the two below */
    bool is_ending;
    struct relay_stats stats;
    int stop_fd;
    /* The thread's own. */
    struct store_session *session;
    struct relay_state state;
    struct relay_cursor cursor; /* runs ahead of the state while there are suspects */
    struct relay_cursor base;   /* before the first suspect */
    size_t suspect_count;
    bool is_retrying;                  /* reads from the base again, to send the first suspect */
    bool is_stopped;                   /* this round sends nothing more */
    char error[RELAY_ERROR_BYTES_MAX]; /* the reason of the last attempt that failed */
    unsigned silences;
    uint64_t delay_ms;
    uint64_t delay_ms_max;
    uint64_t held_ns; /* no attempt to send a held document before */
    bool has_moved;   /* the cursor, since the state got its positions */
    bool is_unsaved;  /* the state changed since it was saved */
    bool has_role;    /* this node is the writer */
    uint64_t saved_ns;
    struct document_page *page;
    struct buffer text;
    struct arena arena;
    struct arena held_arena;
};

/* ---- waiting and reporting ---- */

static bool is_ending(struct relay *relay) {
    pthread_mutex_lock(&relay->lock);
    bool answer = relay->is_ending;
    pthread_mutex_unlock(&relay->lock);
    return answer;
}

/* Until the end, or the time, or, where wakes, until there may be frames. */
static void wait_ms(struct relay *relay, uint64_t delay_ms, bool wakes) {
    struct timespec until;
    clock_gettime(CLOCK_MONOTONIC, &until);
    until.tv_sec += (time_t)(delay_ms / 1000);
    until.tv_nsec += (long)(delay_ms % 1000) * 1000000;
    if (until.tv_nsec >= 1000000000) {
        until.tv_sec++;
        until.tv_nsec -= 1000000000;
    }
    pthread_mutex_lock(&relay->lock);
    int error = 0;
    while (!relay->is_ending && !(wakes && relay->is_awake) && error != ETIMEDOUT)
        error = pthread_cond_timedwait(&relay->changed, &relay->lock, &until);
    if (wakes)
        relay->is_awake = false;
    pthread_mutex_unlock(&relay->lock);
}

static void save(struct relay *relay) {
    enum label_sink sink = relay->options.target.sink;
    enum status status =
        relay_state_save(&relay->state, relay->options.writer, relay->options.folder, sink);
    relay->saved_ns = clock_now().mono_ns;
    relay->is_unsaved = status != STATUS_OK;
    if (status != STATUS_OK)
        log_event(LOG_ERROR, "sink.position_not_saved", log_str("sink", label_sink_name(sink)),
                  log_str("code", status_code(status)));
}

/* What others see of the state. */
static void publish_stats(struct relay *relay) {
    enum label_sink sink = relay->options.target.sink;
    const struct relay_state *state = &relay->state;
    const struct relay_waiting held = relay_state_waiting(state);
    metrics_set(METRIC_SINK_FAILING, METRIC_LABELS(sink), state->failing_since_ms > 0);
    metrics_set(METRIC_SINK_HELD, METRIC_LABELS(sink), held.count);
    pthread_mutex_lock(&relay->lock);
    struct relay_stats *stats = &relay->stats;
    stats->failing_since_ms = state->failing_since_ms;
    memcpy(stats->error, state->error, sizeof(stats->error));
    stats->held = held.count;
    stats->held_since_ms = held.oldest ? held.oldest->since_ms : 0;
    snprintf(stats->held_key, sizeof(stats->held_key), "%s", held.oldest ? held.oldest->key : "");
    memcpy(stats->refusal, state->refusal, sizeof(stats->refusal));
    pthread_mutex_unlock(&relay->lock);
}

static void set_error(struct relay *relay, const char *error) {
    snprintf(relay->error, sizeof(relay->error), "%s", error);
}

/* The round ends, and another begins after a delay. */
static void stop(struct relay *relay, uint64_t delay_ms_max) {
    relay->is_stopped = true;
    relay->delay_ms_max = delay_ms_max;
}

/* What may be saved: everything up to here was taken or is held. */
static void anchor(struct relay *relay) {
    relay->base = relay->cursor;
    relay->state.positions = relay->cursor.positions;
    relay->is_unsaved |= relay->has_moved;
    relay->has_moved = false;
}

static void move(struct relay *relay, enum document_kind kind, const struct position *position) {
    relay->cursor.positions.at[kind] = *position;
    relay->cursor.positions.is_known[kind] = true;
    relay->has_moved = true;
}

/* ---- sending ---- */

static enum relay_answer attempt(struct relay *relay, const struct relay_message *message) {
    const struct relay_target *target = &relay->options.target;
    char error[RELAY_ERROR_BYTES_MAX] = "";
    enum relay_answer answer = target->send(target->user, message, relay->stop_fd, error);
    bool is_taken = answer == RELAY_TAKEN;
    if (!is_taken) {
        /* The text becomes a line of the stored state. */
        for (char *next = error; *next; next++)
            if ((unsigned char)*next < ' ')
                *next = ' ';
        memcpy(relay->error, error, sizeof(error));
    } else {
        relay->delay_ms = DELAY_MS_MIN;
    }
    relay->silences = answer == RELAY_UNREACHABLE ? relay->silences + 1 : 0;
    metrics_add(is_taken ? METRIC_SINK_SENT : METRIC_SINK_FAILURES, METRIC_LABELS(target->sink), 1);
    pthread_mutex_lock(&relay->lock);
    relay->stats.sent += is_taken;
    relay->stats.failures += !is_taken;
    pthread_mutex_unlock(&relay->lock);
    return answer;
}

/* A text that cannot be made fails like the target, and is tried again later. */
static enum relay_answer attempt_text(struct relay *relay, struct relay_message message,
                                      enum status made) {
    message.text = buffer_slice(&relay->text);
    if (made == STATUS_OK)
        return attempt(relay, &message);
    set_error(relay, status_message(made));
    return RELAY_UNREACHABLE;
}

static enum relay_answer attempt_document(struct relay *relay,
                                          const struct store_document *document) {
    const struct relay_cursor *cursor = &relay->cursor;
    struct slice topic = topic_name(document_row(document->kind)->topic);
    const struct relay_walk *walk = &cursor->walks[document->kind];
    char id[MESSAGE_ID_BYTES_MAX];
    int size = snprintf(id, sizeof(id), "%.*s@%" PRIu64, (int)document->key.size,
                        document->key.data, document->version);
    buffer_clear(&relay->text);
    struct object_writer object = object_begin(&relay->text);
    object_text(&object, SLICE("topic"), topic);
    object_number(&object, SLICE("seq"),
                  walk->is_under_way ? walk->end.seq : cursor->positions.at[document->kind].seq);
    object_text(&object, SLICE("kind"), slice_of(document_kind_name(document->kind)));
    object_text(&object, SLICE("doc_key"), document->key);
    object_number(&object, SLICE("doc_version"), document->version);
    object_json(&object, SLICE("payload"), document->payload);
    object_hash(&object, SLICE("payload_hash"), document->payload_hash);
    return attempt_text(
        relay,
        (struct relay_message){
            .topic = topic, .id = {id, (size_t)size < sizeof(id) ? (size_t)size : sizeof(id) - 1}},
        object_end(&object));
}

/* ---- documents that the target refuses ---- */

/* What the store has. The document and the head of its topic are of one moment: later frames of the
 * entity are later states. entity_ref stays 0 where something else than the document fails. */
static enum status read_held(struct relay *relay, const struct relay_held *held,
                             uint64_t *entity_ref, struct store_document *document,
                             struct store_topic *topic) {
    const struct document_row *row = document_row(held->kind);
    struct slice id = slice_from(slice_of(held->key), strlen(row->key_prefix));
    struct store_entity entity;
    arena_reset(&relay->held_arena);
    *entity_ref = 0;
    enum status status = store_read_begin(relay->session);
    if (status != STATUS_OK)
        return status;
    status = store_load_entity(relay->session, row->entity, id, &relay->held_arena, &entity);
    if (status == STATUS_OK)
        status =
            store_load_topic(relay->session, topic_name(row->topic), &relay->held_arena, topic);
    if (status == STATUS_OK) {
        *entity_ref = entity.ref;
        status = store_load_document(relay->session, held->kind, entity.ref, &relay->held_arena,
                                     document);
    }
    store_read_end(relay->session);
    return status;
}

/* A document that is missing or altered is repaired first. STATUS_NOT_FOUND: there is no such
 * document any more. */
static enum status load_held(struct relay *relay, const struct relay_held *held,
                             struct store_document *document, struct store_topic *topic) {
    struct store_damage damage = {.kind = held->kind};
    enum status status = read_held(relay, held, &damage.entity_ref, document, topic);
    bool is_lost = damage.entity_ref > 0 && store_is_lost(status);
    if (!is_lost && (status != STATUS_OK || store_document_is_whole(document)))
        return status;
    enum status repaired = repair(relay->options.writer, &damage);
    if (repaired != STATUS_OK && repaired != STATUS_NOT_FOUND)
        return repaired;
    status = read_held(relay, held, &damage.entity_ref, document, topic);
    /* The repair of a whole table leaves the documents to a later one. */
    bool is_damaged = status == STATUS_OK ? !store_document_is_whole(document)
                                          : status == STATUS_NOT_FOUND && repaired == STATUS_OK;
    return is_damaged ? STATUS_STORE_UNAVAILABLE : status;
}

/* Sends the newest state. */
static enum relay_answer resend(struct relay *relay, struct relay_held *held) {
    struct store_document document;
    struct store_topic topic;
    enum relay_answer answer = RELAY_TAKEN;
    enum status status = load_held(relay, held, &document, &topic);
    if (status == STATUS_OK) {
        answer = attempt_document(relay, &document);
    } else if (status == STATUS_NOT_FOUND) {
        topic.head_seq = 1; /* its frames, if there will be any, are sent as usual */
    } else {
        set_error(relay, status_message(status));
        answer = RELAY_UNREACHABLE;
    }
    if (answer == RELAY_TAKEN) {
        held->settled_seq = topic.head_seq;
        relay->is_unsaved = true;
    }
    return answer;
}

static struct relay_held *first_suspect(struct relay *relay) {
    struct relay_held *held = relay->state.held;
    while (!held->is_suspect)
        held++;
    return held;
}

static void clear_suspects(struct relay *relay) {
    for (size_t i = relay->state.held_count; i-- > 0;)
        if (relay->state.held[i].is_suspect)
            relay_state_remove(&relay->state, &relay->state.held[i]);
    relay->suspect_count = 0;
}

/* The target has just taken another document. If it still refuses the first suspect, it refuses the
 * suspects for what they are. Otherwise it failed for a while: the relay begins again at the base.
 * True: the suspects are held. */
static bool judge(struct relay *relay) {
    struct relay_held *first = first_suspect(relay);
    relay->is_retrying = false;
    if (resend(relay, first) == RELAY_TAKEN) {
        first->is_suspect = false;
        clear_suspects(relay);
        relay->cursor = relay->base;
        return false;
    }
    if (is_ending(relay))
        return false;
    enum label_sink sink = relay->options.target.sink;
    for (size_t i = 0; i < relay->state.held_count; i++) {
        struct relay_held *held = &relay->state.held[i];
        if (!held->is_suspect)
            continue;
        held->is_suspect = false;
        held->since_ms = clock_now().wall_ms;
        held->delay_ms = HELD_DELAY_MS_MIN;
        held->retry_ns = clock_now().mono_ns + HELD_DELAY_MS_MIN * CLOCK_NS_PER_MS;
        relay->suspect_count--;
        relay->is_unsaved = true;
        memcpy(relay->state.refusal, relay->error, sizeof(relay->error));
        log_event(LOG_WARN, "sink.document_held", log_str("sink", label_sink_name(sink)),
                  log_str("reason", relay->error), log_str("doc_key", held->key));
        metrics_add(METRIC_SINK_REFUSED, METRIC_LABELS(sink), 1);
    }
    publish_stats(relay);
    return true;
}

/* After a refusal. True: the relay continues with other entities, to see whether the target takes
 * their documents. */
static bool suspect(struct relay *relay, enum document_kind kind, struct slice key,
                    enum relay_answer answer) {
    uint64_t delay_ms_max = answer == RELAY_UNREACHABLE ? DELAY_MS_MAX : ANSWERED_DELAY_MS_MAX;
    if (answer == RELAY_UNREACHABLE && relay->silences < SILENCES_MAX) {
        stop(relay, delay_ms_max);
        return false;
    }
    relay->silences = 0;
    if (relay->suspect_count == 0)
        anchor(relay);
    struct relay_held *added = relay_state_add(&relay->state, kind, key);
    if (!added) {
        set_error(relay, "the target refuses too many documents");
        stop(relay, delay_ms_max);
        return false;
    }
    added->is_suspect = true;
    relay->suspect_count++;
    /* A target that may be overloaded gets one other document a round. */
    if (answer != RELAY_REFUSED && relay->suspect_count > 1)
        stop(relay, delay_ms_max);
    return true;
}

/* True: the document was taken or set aside, so the cursor may move behind it. */
static bool settle(struct relay *relay, enum document_kind kind, struct slice key,
                   enum relay_answer answer) {
    bool is_first = relay->is_retrying && slice_equal(slice_of(first_suspect(relay)->key), key);
    if (answer != RELAY_TAKEN)
        return !is_first && !is_ending(relay) && suspect(relay, kind, key, answer);
    if (is_first) {
        relay->is_retrying = false;
        clear_suspects(relay);
    } else if (relay->suspect_count > 0 && !judge(relay)) {
        return false;
    }
    if (relay->state.failing_since_ms == 0)
        return true;
    relay->state.failing_since_ms = 0;
    log_event(LOG_INFO, "sink.recovered",
              log_str("sink", label_sink_name(relay->options.target.sink)));
    publish_stats(relay);
    save(relay);
    return true;
}

/* Whether a frame waits with its entity, or the target has a later state. */
static bool is_held_back(struct relay *relay, struct slice key, uint64_t seq) {
    const struct relay_held *held = relay_state_find(&relay->state, key);
    if (!held)
        return false;
    if (held->settled_seq > 0)
        return seq <= held->settled_seq;
    return !relay->is_retrying || held != first_suspect(relay);
}

/* The held document whose next attempt is the first; NULL: none is held. */
static struct relay_held *next_held(const struct relay *relay) {
    struct relay_held *next = NULL;
    for (size_t i = 0; i < relay->state.held_count; i++) {
        struct relay_held *held = &relay->state.held[i];
        bool is_waiting = !held->is_suspect && held->settled_seq == 0;
        if (is_waiting && (!next || held->retry_ns < next->retry_ns))
            next = held;
    }
    return next;
}

static void retry_held(struct relay *relay) {
    struct relay_held *held = next_held(relay);
    uint64_t begun_ns = clock_now().mono_ns;
    unsigned silences = relay->silences;
    if (!held || held->retry_ns > begun_ns || relay->held_ns > begun_ns)
        return;
    enum relay_answer answer = resend(relay, held);
    uint64_t ended_ns = clock_now().mono_ns;
    relay->held_ns = ended_ns + (ended_ns - begun_ns) * HELD_PAUSE_FACTOR;
    relay->silences = silences; /* they are of the frame that is next */
    if (answer == RELAY_TAKEN) {
        log_event(LOG_INFO, "sink.document_taken",
                  log_str("sink", label_sink_name(relay->options.target.sink)),
                  log_str("doc_key", held->key));
    } else {
        uint64_t delay_ms = held->delay_ms * 2;
        held->delay_ms = delay_ms < HELD_DELAY_MS_MIN   ? HELD_DELAY_MS_MIN
                         : delay_ms > HELD_DELAY_MS_MAX ? HELD_DELAY_MS_MAX
                                                        : delay_ms;
        held->retry_ns = ended_ns + held->delay_ms * CLOCK_NS_PER_MS;
        if (!is_ending(relay))
            memcpy(relay->state.refusal, relay->error, sizeof(relay->error));
    }
    publish_stats(relay);
}

/* Frames that these entries keep back have been passed. */
static void drop_settled(struct relay *relay) {
    const struct relay_positions *positions = &relay->state.positions;
    for (size_t i = relay->state.held_count; i-- > 0;) {
        struct relay_held *held = &relay->state.held[i];
        if (held->settled_seq > 0 && positions->is_known[held->kind] &&
            positions->at[held->kind].seq >= held->settled_seq) {
            relay_state_remove(&relay->state, held);
            relay->is_unsaved = true;
        }
    }
}

/* ---- all documents, where the position cannot resume ---- */

struct document_page {
    struct relay *relay;
    uint64_t absent_ref;  /* as in struct relay_walk */
    uint64_t last_ref;    /* entities up to here were looked at */
    uint64_t damaged_ref; /* the next document is missing or altered; 0: it is not */
    size_t count;
    struct store_document documents[RELAY_FRAMES_MAX];
};

/* Copies: sending inside the walk would hold its transaction open. */
static enum status keep_document(void *user, const struct store_document *document) {
    struct document_page *page = user;
    struct store_document *kept = &page->documents[page->count];
    bool is_absent = !document->payload.data && document->entity_ref == page->absent_ref;
    if (!is_absent && !store_document_is_whole(document)) {
        page->damaged_ref = document->entity_ref;
        return STATUS_LIMIT_REACHED;
    }
    if (!is_absent) {
        *kept = *document;
        kept->key = arena_copy(&page->relay->arena, document->key);
        kept->payload = arena_copy(&page->relay->arena, document->payload);
        if (!kept->key.data || !kept->payload.data)
            return page->count > 0 ? STATUS_LIMIT_REACHED : STATUS_OUT_OF_MEMORY;
        page->count++;
    }
    page->last_ref = document->entity_ref;
    return STATUS_OK;
}

/* Has the document repaired that ended the page; the next page begins with it. */
static enum status repair_damaged(struct relay *relay, enum document_kind kind,
                                  struct relay_walk *walk) {
    const struct store_damage damage = {.kind = kind, .entity_ref = relay->page->damaged_ref};
    if (damage.entity_ref == 0)
        return STATUS_OK;
    enum status status = repair(relay->options.writer, &damage);
    if (status != STATUS_NOT_FOUND)
        return status;
    /* A document that is there, altered, and nothing to repair. */
    if (walk->absent_ref == damage.entity_ref)
        return STATUS_STORE_UNAVAILABLE;
    walk->absent_ref = damage.entity_ref;
    return STATUS_OK;
}

/* One page. False: the round ends, and the walk continues in another. */
static bool walk_documents(struct relay *relay, enum document_kind kind,
                           const struct journal_read *read) {
    const struct position end = {.seq = read->window.head_seq, .epoch = read->epoch};
    struct relay_walk *walk = &relay->cursor.walks[kind];
    struct document_page *page = relay->page;
    if (!walk->is_under_way || strcmp(walk->end.epoch.text, end.epoch.text) != 0) {
        relay->cursor.positions.is_known[kind] = false;
        *walk = (struct relay_walk){.is_under_way = true, .end = end};
        for (size_t i = relay->state.held_count; i-- > 0;) {
            struct relay_held *held = &relay->state.held[i];
            if (held->kind == kind && held->settled_seq > 0) /* its journal may be gone */
                relay_state_remove(&relay->state, held);
        }
    }
    arena_reset(&relay->arena);
    page->count = 0;
    page->damaged_ref = 0;
    page->last_ref = walk->last_ref;
    page->absent_ref = walk->absent_ref;
    enum status status = store_walk_documents(relay->session, kind, walk->last_ref,
                                              RELAY_FRAMES_MAX, page, keep_document);
    bool is_read = status == STATUS_OK || status == STATUS_LIMIT_REACHED;
    bool is_end = is_read && page->last_ref == walk->last_ref && page->damaged_ref == 0;
    for (size_t i = 0; is_read && i < page->count; i++) {
        const struct store_document *document = &page->documents[i];
        if (!is_held_back(relay, document->key, UINT64_MAX) &&
            !settle(relay, kind, document->key, attempt_document(relay, document)))
            return false;
        walk->last_ref = document->entity_ref;
        if (relay->is_stopped)
            return false;
    }
    if (is_read) {
        walk->last_ref = page->last_ref;
        status = repair_damaged(relay, kind, walk);
    }
    if (status != STATUS_OK) {
        set_error(relay, status_message(status));
        stop(relay, DELAY_MS_MAX);
        return false;
    }
    if (is_end) {
        walk->is_under_way = false;
        move(relay, kind, &walk->end);
    }
    return true;
}

/* ---- the journal ---- */

/* The relay is a reader like any other: the same checks decide whether its position can resume. */
static struct journal_read *read_page(struct relay *relay, enum document_kind kind) {
    struct slice topic = topic_name(document_row(kind)->topic);
    struct journal_read *read = calloc(1, sizeof(*read));
    if (!read)
        return NULL;
    const struct relay_positions *positions = &relay->cursor.positions;
    read->asked = (struct journal_request){
        .topic = topic,
        .projection_version = relay->options.projection_version,
        .policy = policy_of(relay->options.policies, topic),
        .mode = JOURNAL_READ_RESUME,
        .after_seq = positions->at[kind].seq,
        .below_seq = UINT64_MAX,
        .frames_max = positions->is_known[kind] ? RELAY_FRAMES_MAX : 0,
        .writer = relay->options.writer,
        .given_epoch = positions->at[kind].epoch,
    };
    while (journal_read_run(read, relay->session))
        ;
    return read;
}

static bool send_frames(struct relay *relay, enum document_kind kind,
                        const struct journal_read *read) {
    struct position position = {.epoch = read->epoch};
    const struct slice topic = read->asked.topic;
    for (size_t i = 0; i < read->count && !relay->is_stopped; i++) {
        const struct frame *frame = read->frames[i];
        struct slice key = frame->content.document_key;
        position.seq = frame->content.seq;
        if (!is_held_back(relay, key, position.seq)) {
            char id[MESSAGE_ID_BYTES_MAX];
            int size = snprintf(id, sizeof(id), "%.*s/%" PRIu64, (int)topic.size, topic.data,
                                position.seq);
            const struct relay_message message = {.topic = topic, .id = {id, (size_t)size}};
            buffer_clear(&relay->text);
            buffer_append_byte(&relay->text, '{');
            buffer_append_slice(&relay->text, frame->forms[FRAME_FULL]);
            buffer_append_byte(&relay->text, '}');
            enum relay_answer answer = attempt_text(relay, message, buffer_status(&relay->text));
            if (!settle(relay, kind, key, answer))
                return false;
        }
        move(relay, kind, &position);
    }
    return !relay->is_stopped;
}

/* One page of one topic. True: there may be more. */
static bool relay_topic(struct relay *relay, enum document_kind kind, uint64_t *waiting) {
    bool goes_on = false;
    const struct relay_positions *positions = &relay->cursor.positions;
    struct journal_read *read = read_page(relay, kind);
    if (!read || read->status != STATUS_OK) {
        set_error(relay, status_message(read ? read->status : STATUS_OUT_OF_MEMORY));
        stop(relay, DELAY_MS_MAX);
    } else if (!read->exists) {
        goes_on = false;
    } else if (read->state == JOURNAL_STALE || !positions->is_known[kind]) {
        goes_on = walk_documents(relay, kind, read);
    } else if (read->count > 0) {
        goes_on = send_frames(relay, kind, read);
    }
    /* The frames of suspects are not sent yet. */
    positions = relay->suspect_count > 0 ? &relay->base.positions : positions;
    if (read && read->status == STATUS_OK && positions->is_known[kind] &&
        read->window.head_seq > positions->at[kind].seq)
        *waiting += read->window.head_seq - positions->at[kind].seq;
    if (read)
        journal_read_release(read);
    free(read);
    return goes_on;
}

/* From where the first suspect was refused: when the target takes it, everything follows in order.
 */
static void retry_suspect(struct relay *relay) {
    const struct relay_cursor cursor = relay->cursor;
    uint64_t waiting = 0;
    relay->cursor = relay->base;
    relay->is_retrying = true;
    (void)relay_topic(relay, first_suspect(relay)->kind, &waiting);
    if (relay->is_retrying)
        relay->cursor = cursor;
    relay->is_retrying = false;
}

/* Nothing is sent while another node is the writer. That node may have moved the positions, so they
 * are read again when this node gets the role. */
static bool may_send(struct relay *relay) {
    bool has_role = writer_has_role(relay->options.writer);
    if (has_role != relay->has_role) {
        relay_state_release(&relay->state);
        if (has_role)
            relay_state_load(&relay->state, relay->session, relay->options.folder,
                             relay->options.target.sink);
        relay->cursor = (struct relay_cursor){.positions = relay->state.positions};
        relay->suspect_count = 0;
        relay->has_moved = relay->is_unsaved = false;
        relay->delay_ms = DELAY_MS_MIN;
        publish_stats(relay);
    }
    relay->has_role = has_role;
    return has_role;
}

/* may_wake: a new frame may show that the target takes other documents. */
static void back_off(struct relay *relay, bool may_wake) {
    uint64_t delay_ms = relay->delay_ms;
    uint64_t least_ms = delay_ms < relay->delay_ms_max ? delay_ms : relay->delay_ms_max;
    bool is_new = relay->state.failing_since_ms == 0;
    if (is_new) {
        relay->state.failing_since_ms = clock_now().wall_ms;
        log_event(LOG_WARN, "sink.failing",
                  log_str("sink", label_sink_name(relay->options.target.sink)),
                  log_str("reason", relay->error));
    }
    memcpy(relay->state.error, relay->error, sizeof(relay->error));
    publish_stats(relay);
    if (is_new)
        save(relay);
    wait_ms(relay, least_ms, false);
    if (may_wake)
        wait_ms(relay, delay_ms - least_ms, true);
    relay->delay_ms = delay_ms * 2 < DELAY_MS_MAX ? delay_ms * 2 : DELAY_MS_MAX;
}

static void *relay_main(void *user) {
    struct relay *relay = user;
    while (!is_ending(relay)) {
        uint64_t waiting = 0;
        bool has_more = false;
        relay->is_stopped = false;
        relay->delay_ms_max = ANSWERED_DELAY_MS_MAX;
        if (may_send(relay) && relay->suspect_count > 0)
            retry_suspect(relay);
        else if (relay->has_role)
            retry_held(relay);
        for (unsigned i = 0; !relay->is_stopped && may_send(relay) && i < DOCUMENT_KIND_COUNT; i++)
            has_more |= relay_topic(relay, (enum document_kind)i, &waiting);
        if (relay->suspect_count == 0) {
            anchor(relay);
            drop_settled(relay);
        }
        pthread_mutex_lock(&relay->lock);
        relay->stats.waiting = waiting;
        pthread_mutex_unlock(&relay->lock);
        /* Positions are saved once in a while, because each save is a commit of the writer. */
        if (relay->is_unsaved && clock_now().mono_ns - relay->saved_ns >= SAVE_MS * CLOCK_NS_PER_MS)
            save(relay);
        if (is_ending(relay))
            break;
        if (relay->is_stopped || relay->suspect_count > 0) {
            back_off(relay, !relay->is_stopped && !has_more);
            continue;
        }
        if (has_more)
            continue;
        /* Until there may be frames, or the next held document is due. */
        const struct relay_held *held = next_held(relay);
        uint64_t idle_ms = IDLE_MS;
        if (held) {
            uint64_t now_ns = clock_now().mono_ns;
            uint64_t next_ns = held->retry_ns > relay->held_ns ? held->retry_ns : relay->held_ns;
            uint64_t due_ms = next_ns > now_ns ? (next_ns - now_ns) / CLOCK_NS_PER_MS + 1 : 0;
            idle_ms = due_ms < IDLE_MS ? due_ms : IDLE_MS;
        }
        wait_ms(relay, idle_ms, true);
    }
    if (relay->is_unsaved)
        save(relay);
    return NULL;
}

/* ---- opening and ending ---- */

static void relay_free(struct relay *relay) {
    relay->options.target.close(relay->options.target.user);
    store_session_close(relay->session);
    if (relay->stop_fd >= 0)
        close(relay->stop_fd);
    buffer_release(&relay->text);
    arena_release(&relay->arena);
    arena_release(&relay->held_arena);
    relay_state_release(&relay->state);
    pthread_cond_destroy(&relay->changed);
    pthread_mutex_destroy(&relay->lock);
    free(relay->page);
    free(relay);
}

enum status relay_start(struct relay **relay, const struct relay_options *options) {
    struct relay *made = calloc(1, sizeof(*made));
    if (!made) {
        options->target.close(options->target.user);
        return STATUS_OUT_OF_MEMORY;
    }
    made->options = *options;
    made->stats.sink = options->target.sink;
    made->stop_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    made->page = calloc(1, sizeof(*made->page));
    buffer_init(&made->text, RELAY_MESSAGE_BYTES_MAX);
    arena_init(&made->arena, RELAY_PAGE_BYTES_MAX);
    arena_init(&made->held_arena, RELAY_RESEND_BYTES_MAX);
    made->delay_ms = DELAY_MS_MIN;
    pthread_condattr_t monotonic;
    pthread_mutex_init(&made->lock, NULL);
    pthread_condattr_init(&monotonic);
    pthread_condattr_setclock(&monotonic, CLOCK_MONOTONIC);
    pthread_cond_init(&made->changed, &monotonic);
    pthread_condattr_destroy(&monotonic);
    enum status status = made->page ? STATUS_OK : STATUS_OUT_OF_MEMORY;
    if (status == STATUS_OK && made->stop_fd < 0)
        status = STATUS_SYSTEM_ERROR;
    if (status == STATUS_OK)
        status = store_session_open(options->store, STORE_READ, &made->session);
    if (status == STATUS_OK) {
        made->page->relay = made;
        if (pthread_create(&made->thread, NULL, relay_main, made) != 0)
            status = STATUS_SYSTEM_ERROR;
    }
    if (status != STATUS_OK) {
        relay_free(made);
        return status;
    }
    *relay = made;
    return STATUS_OK;
}

void relay_wake(struct relay *relay) {
    pthread_mutex_lock(&relay->lock);
    relay->is_awake = true;
    pthread_cond_signal(&relay->changed);
    pthread_mutex_unlock(&relay->lock);
}

void relay_stop(struct relay *relay) {
    uint64_t one = 1;
    if (!relay)
        return;
    pthread_mutex_lock(&relay->lock);
    relay->is_ending = true;
    pthread_cond_signal(&relay->changed);
    pthread_mutex_unlock(&relay->lock);
    ssize_t written = write(relay->stop_fd, &one, sizeof(one));
    assert(written == sizeof(one));
    (void)written;
    pthread_join(relay->thread, NULL);
    relay_free(relay);
}

struct relay_stats relay_stats(struct relay *relay) {
    pthread_mutex_lock(&relay->lock);
    struct relay_stats stats = relay->stats;
    pthread_mutex_unlock(&relay->lock);
    return stats;
}
