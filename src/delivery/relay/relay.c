#include "delivery/relay/relay.h"

#include <assert.h>
#include <errno.h>
#include <inttypes.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/limits.h"
#include "base/log.h"
#include "base/metrics.h"
#include "delivery/journal_read.h"
#include "delivery/mend.h"
#include "wire/object_writer.h"

#define IDLE_MS              1000
#define SAVE_MS              1000
#define DELAY_MS_MIN         100
#define DELAY_MS_MAX         10000
#define REFUSALS_MAX         5
#define MESSAGE_ID_BYTES_MAX 384

struct document_page;

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
    bool is_unsaved; /* a position moved since the state was saved */
    bool has_role;   /* this node is the writer */
    uint64_t saved_ns;
    struct document_page *page;
    struct buffer text;
    struct arena arena;
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

/* Positions are saved once in a while, because each save is a commit of the writer. */
static void save_if_due(struct relay *relay) {
    if (relay->is_unsaved && clock_now().mono_ns - relay->saved_ns >= SAVE_MS * CLOCK_NS_PER_MS)
        save(relay);
}

static void failed(struct relay *relay, const char *error) {
    enum label_sink sink = relay->options.target.sink;
    bool is_new = relay->state.failing_since_ms == 0;
    if (is_new) {
        relay->state.failing_since_ms = clock_now().wall_ms;
        log_event(LOG_WARN, "sink.failing", log_str("sink", label_sink_name(sink)),
                  log_str("reason", error));
    }
    snprintf(relay->state.error, sizeof(relay->state.error), "%s", error);
    metrics_add(METRIC_SINK_FAILURES, METRIC_LABELS(sink), 1);
    metrics_set(METRIC_SINK_FAILING, METRIC_LABELS(sink), 1);
    pthread_mutex_lock(&relay->lock);
    relay->stats.failures++;
    relay->stats.failing_since_ms = relay->state.failing_since_ms;
    memcpy(relay->stats.error, relay->state.error, sizeof(relay->stats.error));
    pthread_mutex_unlock(&relay->lock);
    if (is_new)
        save(relay);
}

static void recovered(struct relay *relay) {
    enum label_sink sink = relay->options.target.sink;
    if (relay->state.failing_since_ms == 0)
        return;
    relay->state.failing_since_ms = 0;
    log_event(LOG_INFO, "sink.recovered", log_str("sink", label_sink_name(sink)));
    metrics_set(METRIC_SINK_FAILING, METRIC_LABELS(sink), 0);
    pthread_mutex_lock(&relay->lock);
    relay->stats.failing_since_ms = 0;
    pthread_mutex_unlock(&relay->lock);
    save(relay);
}

static void set_waiting(struct relay *relay, uint64_t waiting) {
    pthread_mutex_lock(&relay->lock);
    relay->stats.waiting = waiting;
    pthread_mutex_unlock(&relay->lock);
}

/* ---- sending ---- */

static void count_dropped(struct relay *relay, const struct relay_message *message) {
    enum label_sink sink = relay->options.target.sink;
    log_event(LOG_ERROR, "sink.document_refused", log_str("sink", label_sink_name(sink)),
              log_str("reason", relay->state.error), log_slice("doc_key", message->document_key));
    metrics_add(METRIC_SINK_DROPPED, METRIC_LABELS(sink), 1);
    pthread_mutex_lock(&relay->lock);
    relay->stats.dropped++;
    pthread_mutex_unlock(&relay->lock);
}

/* Sends until the target has the message, has refused it often enough, or the relay ends. False: it
 * ends. */
static bool send(struct relay *relay, const struct relay_message *message) {
    const struct relay_target *target = &relay->options.target;
    unsigned refusals = 0;
    for (uint64_t delay_ms = DELAY_MS_MIN; !is_ending(relay);) {
        char error[RELAY_ERROR_BYTES_MAX] = "";
        enum status status = target->send(target->user, message, relay->stop_fd, error);
        if (status == STATUS_OK) {
            metrics_add(METRIC_SINK_SENT, METRIC_LABELS(target->sink), 1);
            pthread_mutex_lock(&relay->lock);
            relay->stats.sent++;
            pthread_mutex_unlock(&relay->lock);
            recovered(relay);
            return true;
        }
        if (is_ending(relay))
            break;
        failed(relay, error);
        if (status == STATUS_INVALID_REQUEST && ++refusals == REFUSALS_MAX) {
            count_dropped(relay, message);
            return true;
        }
        wait_ms(relay, delay_ms, false);
        delay_ms = delay_ms * 2 < DELAY_MS_MAX ? delay_ms * 2 : DELAY_MS_MAX;
    }
    return false;
}

/* True: go on. A text that cannot be made fails like the target, and is made again later. */
static bool send_text(struct relay *relay, struct relay_message message, enum status made) {
    message.text = buffer_slice(&relay->text);
    if (made == STATUS_OK)
        return send(relay, &message);
    failed(relay, status_message(made));
    return false;
}

static bool send_frame(struct relay *relay, struct slice topic, const struct frame *frame) {
    char id[MESSAGE_ID_BYTES_MAX];
    int size =
        snprintf(id, sizeof(id), "%.*s/%" PRIu64, (int)topic.size, topic.data, frame->content.seq);
    buffer_clear(&relay->text);
    enum status status = buffer_append_byte(&relay->text, '{');
    if (status == STATUS_OK)
        status = buffer_append_slice(&relay->text, frame->forms[FRAME_FULL]);
    if (status == STATUS_OK)
        status = buffer_append_byte(&relay->text, '}');
    return send_text(relay,
                     (struct relay_message){.topic = topic,
                                            .document_key = frame->content.document_key,
                                            .id = {id, (size_t)size}},
                     status);
}

/* ---- all documents, where the position cannot resume ---- */

struct document_page {
    struct relay *relay;
    uint64_t last_ref;    /* entities up to here were looked at */
    uint64_t damaged_ref; /* the next document is missing or altered; 0: it is not */
    uint64_t absent_ref;  /* this entity really has no document */
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

/* Has the document repaired that ended the page. */
static enum status mend_damaged(struct document_page *page, enum document_kind kind) {
    const struct store_damage damage = {.kind = kind, .entity_ref = page->damaged_ref};
    if (page->damaged_ref == 0)
        return STATUS_OK;
    enum status status = mend(page->relay->options.writer, &damage);
    if (status != STATUS_NOT_FOUND)
        return status;
    page->absent_ref = page->damaged_ref;
    return STATUS_OK;
}

static bool send_document(struct relay *relay, struct slice topic, uint64_t seq,
                          const struct store_document *document) {
    char id[MESSAGE_ID_BYTES_MAX];
    int size = snprintf(id, sizeof(id), "%.*s@%" PRIu64, (int)document->key.size,
                        document->key.data, document->version);
    buffer_clear(&relay->text);
    struct object_writer object = object_begin(&relay->text);
    object_text(&object, SLICE("topic"), topic);
    object_number(&object, SLICE("seq"), seq);
    object_text(&object, SLICE("kind"), slice_of(document_kind_name(document->kind)));
    object_text(&object, SLICE("doc_key"), document->key);
    object_number(&object, SLICE("doc_version"), document->version);
    object_json(&object, SLICE("payload"), document->payload);
    object_hash(&object, SLICE("payload_hash"), document->payload_hash);
    return send_text(relay,
                     (struct relay_message){
                         .topic = topic,
                         .document_key = document->key,
                         .id = {id, (size_t)size < sizeof(id) ? (size_t)size : sizeof(id) - 1}},
                     object_end(&object));
}

/* False: the relay ends, or the store failed; the documents are sent again later. */
static bool send_documents(struct relay *relay, enum document_kind kind, uint64_t seq) {
    struct slice topic = topic_name(document_row(kind)->topic);
    struct document_page *page = relay->page;
    uint64_t before_ref;
    page->last_ref = page->absent_ref = 0;
    do {
        arena_reset(&relay->arena);
        page->count = 0;
        page->damaged_ref = 0;
        before_ref = page->last_ref;
        enum status status = store_walk_documents(relay->session, kind, page->last_ref,
                                                  RELAY_FRAMES_MAX, page, keep_document);
        if (status == STATUS_OK || status == STATUS_LIMIT_REACHED)
            status = mend_damaged(page, kind);
        if (status != STATUS_OK) {
            failed(relay, status_message(status));
            return false;
        }
        for (size_t i = 0; i < page->count; i++)
            if (!send_document(relay, topic, seq, &page->documents[i]))
                return false;
    } while (page->last_ref > before_ref || page->damaged_ref > 0);
    return true;
}

/* ---- the journal ---- */

/* The relay is a reader like any other: the same checks decide whether its position can resume. */
static struct journal_read *read_page(struct relay *relay, enum document_kind kind) {
    struct slice topic = topic_name(document_row(kind)->topic);
    struct journal_read *read = calloc(1, sizeof(*read));
    if (!read)
        return NULL;
    bool has_position = relay->state.has_position[kind];
    *read = (struct journal_read){
        .topic = topic,
        .projection_version = relay->options.projection_version,
        .policy = policy_of(relay->options.policies, topic),
        .mode = JOURNAL_READ_RESUME,
        .after_seq = relay->state.positions[kind].seq,
        .below_seq = UINT64_MAX,
        .frames_max = has_position ? RELAY_FRAMES_MAX : 0,
        .writer = relay->options.writer,
        .given_epoch = relay->state.positions[kind].epoch,
    };
    while (journal_read_run(read, relay->session))
        ;
    return read;
}

static void set_position(struct relay *relay, enum document_kind kind, uint64_t seq,
                         const struct topic_epoch *epoch) {
    relay->state.has_position[kind] = true;
    relay->state.positions[kind] = (struct position){.seq = seq, .epoch = *epoch};
    relay->is_unsaved = true;
}

static bool send_frames(struct relay *relay, enum document_kind kind,
                        const struct journal_read *read) {
    uint64_t seq = read->next_seq - 1;
    bool goes_on = true;
    for (size_t i = 0; goes_on && i < read->count; i++) {
        goes_on = send_frame(relay, read->topic, read->frames[i]);
        if (goes_on)
            seq = read->frames[i]->content.seq;
    }
    if (seq >= read->next_seq)
        set_position(relay, kind, seq, &read->epoch);
    return goes_on;
}

/* One page of one topic. True: there may be more. */
static bool relay_topic(struct relay *relay, enum document_kind kind, uint64_t *waiting) {
    bool goes_on = false;
    struct journal_read *read = read_page(relay, kind);
    if (!read || read->status != STATUS_OK) {
        failed(relay, status_message(read ? read->status : STATUS_OUT_OF_MEMORY));
    } else if (!read->exists) {
        goes_on = false;
    } else if (read->is_stale || !relay->state.has_position[kind]) {
        goes_on = send_documents(relay, kind, read->window.head_seq);
        if (goes_on)
            set_position(relay, kind, read->window.head_seq, &read->epoch);
    } else if (read->count > 0) {
        goes_on = send_frames(relay, kind, read);
    }
    if (read && read->status == STATUS_OK && relay->state.has_position[kind] &&
        read->window.head_seq > relay->state.positions[kind].seq)
        *waiting += read->window.head_seq - relay->state.positions[kind].seq;
    if (read)
        journal_read_release(read);
    free(read);
    return goes_on;
}

/* Nothing is sent while another node is the writer. That node may have moved the positions, so they
 * are read again when this node gets the role. */
static bool may_send(struct relay *relay) {
    bool has_role = writer_has_role(relay->options.writer);
    if (has_role && !relay->has_role)
        relay_state_load(&relay->state, relay->session, relay->options.folder,
                         relay->options.target.sink);
    relay->has_role = has_role;
    relay->is_unsaved = relay->is_unsaved && has_role;
    return has_role;
}

static void *relay_main(void *user) {
    struct relay *relay = user;
    while (!is_ending(relay)) {
        uint64_t waiting = 0;
        bool has_more = false;
        for (unsigned i = 0; may_send(relay) && i < DOCUMENT_KIND_COUNT; i++)
            has_more |= relay_topic(relay, (enum document_kind)i, &waiting);
        set_waiting(relay, waiting);
        save_if_due(relay);
        if (!has_more)
            wait_ms(relay, IDLE_MS, true);
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
    pthread_cond_destroy(&relay->changed);
    pthread_mutex_destroy(&relay->lock);
    free(relay->page);
    free(relay);
}

static void init_wait(struct relay *relay) {
    pthread_condattr_t monotonic;
    pthread_mutex_init(&relay->lock, NULL);
    pthread_condattr_init(&monotonic);
    pthread_condattr_setclock(&monotonic, CLOCK_MONOTONIC);
    pthread_cond_init(&relay->changed, &monotonic);
    pthread_condattr_destroy(&monotonic);
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
    init_wait(made);
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
