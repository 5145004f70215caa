/* Three checks. verify reads the log twice: in its own order for hashes, positions and cursors, and
 * by entity for links and gaps; verify_sample reads some stretches of it. journal_check walks over
 * the rows of each topic. document_check compares each document with its checkpoint. */
#include "projector/verify.h"

#include <assert.h>
#include <stdio.h>
#include <stdlib.h>

#include "authority/chain_hash.h"
#include "base/limits.h"
#include "projector/fold.h"

#define PAGE_ENTITIES   256
#define PROGRESS_EVENTS 1024

/* Stops a walk. Callers of this module never see it. */
#define STOPPED STATUS_EVENT_HASH_MISMATCH

struct link_before {
    uint64_t entity_ref;
    uint64_t seq;
    uint8_t hash[SHA256_BYTES];
    bool is_found;
};

struct verification {
    struct store_session *session;
    const struct verify_options *options;
    struct verify_result *result;
    uint64_t log_end;
    uint64_t done;
    struct buffer scratch;
    /* The walk by log order. */
    uint64_t log_id;
    struct uuid cursor;
    /* The walk of one entity. */
    struct arena arena;
    uint64_t seq;
    uint8_t head_hash[SHA256_BYTES];
    uint64_t linked_events; /* total of all entities */
    uint64_t refs[PAGE_ENTITIES];
    size_t ref_count;
    struct link_before last; /* the event before in a sample */
};

static enum status broken(struct verification *work, const struct store_event *event,
                          const char *message) {
    struct verify_break *link = &work->result->broken;
    work->result->is_broken = true;
    link->message = message;
    link->seq = event->seq;
    link->log_id = event->log_id;
    snprintf(link->entity, sizeof(link->entity), "%s:%.*s", entity_kind_name(event->entity_kind),
             (int)event->entity_id.size, event->entity_id.data);
    return STOPPED;
}

static void progress(struct verification *work) {
    if (++work->done % PROGRESS_EVENTS == 0 && work->options->on_progress)
        work->options->on_progress(work->options->user, work->done, 2 * work->log_end);
}

/* ---- by log order ----------------------------------------------------------------------- */

static enum status check_event(void *user, const struct store_event *event) {
    struct verification *work = user;
    if (event->log_id > work->log_end)
        return STOPPED;
    if (event->log_id != work->log_id + 1)
        return broken(work, event, "events before this one are missing from the log");
    if (work->log_id > 0 && uuid_compare(&event->cursor, &work->cursor) <= 0)
        return broken(work, event, "the cursor is not above the cursor of the previous event");
    work->log_id = event->log_id;
    work->cursor = event->cursor;
    work->result->events++;
    progress(work);
    uint8_t hash[SHA256_BYTES];
    sha256(event->payload.data, event->payload.size, hash);
    if (memcmp(hash, event->payload_hash, SHA256_BYTES) != 0)
        return broken(work, event, "the payload does not hash to its payload_hash");
    buffer_clear(&work->scratch);
    if (chain_hash(event, &work->scratch, hash) != STATUS_OK ||
        memcmp(hash, event->chain_hash, SHA256_BYTES) != 0)
        return broken(work, event, "the event does not hash to its chain_hash");
    return STATUS_OK;
}

/* Walks over a part of the log. */
static enum status check_stretch(struct verification *work, uint64_t after, uint64_t count,
                                 enum status (*check)(void *user,
                                                      const struct store_event *event)) {
    uint64_t end = after + count < work->log_end ? after + count : work->log_end;
    enum status status = store_walk_log(work->session, after, count, work, check);
    if (status == STATUS_OK && work->log_id < end) {
        const struct store_event missing = {.log_id = work->log_id + 1};
        status = broken(work, &missing, "the log ends before its last event");
        work->result->broken.entity[0] = '\0';
    }
    return status;
}

/* ---- by entity -------------------------------------------------------------------------- */

static enum status check_link(void *user, const struct store_event *event) {
    struct verification *work = user;
    if (event->log_id > work->log_end)
        return STOPPED;
    if (event->seq != work->seq + 1)
        return broken(work, event, "earlier events of the entity are missing");
    if (memcmp(event->prev_chain_hash, work->head_hash, SHA256_BYTES) != 0)
        return broken(work, event, "the link to the previous event of the entity is broken");
    work->seq = event->seq;
    memcpy(work->head_hash, event->chain_hash, SHA256_BYTES);
    work->linked_events++;
    progress(work);
    return STATUS_OK;
}

/* Walks over the events of an entity, and compares the last one with the head in the row of the
 * entity, unless events were appended meanwhile. */
static enum status check_entity(struct verification *work, uint64_t ref) {
    struct store_entity entity;
    arena_reset(&work->arena);
    enum status status = store_load_entity_ref(work->session, ref, &work->arena, &entity);
    work->seq = 0;
    memset(work->head_hash, 0, SHA256_BYTES);
    while (status == STATUS_OK) {
        uint64_t before = work->seq;
        status = store_walk_entity_events(work->session, ref, before, VERIFY_PAGE_EVENTS_MAX, work,
                                          check_link);
        if (work->seq == before)
            break;
    }
    if (status == STOPPED && !work->result->is_broken)
        status = STATUS_OK;
    if (status != STATUS_OK)
        return status;
    if (work->seq > entity.head_seq ||
        (work->seq == entity.head_seq && entity.head_seq > 0 &&
         memcmp(work->head_hash, entity.head_hash, SHA256_BYTES) != 0)) {
        const struct store_event head = {
            .entity_kind = entity.kind, .entity_id = entity.id, .seq = entity.head_seq};
        return broken(work, &head, "the entity's head is not its last event");
    }
    work->result->entities += work->seq > 0;
    return STATUS_OK;
}

static enum status add_ref(void *user, const struct store_entity *entity) {
    struct verification *work = user;
    work->refs[work->ref_count++] = entity->ref;
    return STATUS_OK;
}

enum status verify(struct store_session *session, const struct verify_options *options,
                   struct verify_result *result) {
    struct verification work = {.session = session, .options = options, .result = result};
    struct store_state state;
    memset(result, 0, sizeof(*result));
    enum status status = store_read_state(session, &state);
    if (status != STATUS_OK)
        return status;
    work.log_end = state.log_id;
    buffer_init(&work.scratch, CHAIN_HASH_SCRATCH_BYTES);
    arena_init(&work.arena, VERIFY_ENTITY_BYTES_MAX);
    while (status == STATUS_OK && work.log_id < work.log_end)
        status = check_stretch(&work, work.log_id, VERIFY_PAGE_EVENTS_MAX, check_event);
    if (status == STOPPED && !result->is_broken)
        status = STATUS_OK;
    for (unsigned kind = 0; kind < ENTITY_KIND_COUNT && status == STATUS_OK; kind++) {
        uint64_t after_ref = 0;
        do {
            work.ref_count = 0;
            status = store_walk_entities(session, (enum entity_kind)kind, after_ref, PAGE_ENTITIES,
                                         &work, add_ref);
            for (size_t i = 0; i < work.ref_count && status == STATUS_OK; i++) {
                after_ref = work.refs[i];
                status = check_entity(&work, after_ref);
            }
        } while (status == STATUS_OK && work.ref_count > 0);
    }
    if (status == STATUS_OK && work.linked_events != work.log_end) {
        const struct store_event none = {0};
        status = broken(&work, &none, "the log holds events that belong to no entity");
        result->broken.entity[0] = '\0';
    }
    if (status == STOPPED && result->is_broken)
        status = STATUS_OK;
    if (options->on_progress)
        options->on_progress(options->user, work.done, work.done);
    buffer_release(&work.scratch);
    arena_release(&work.arena);
    return status;
}

/* ---- samples ---------------------------------------------------------------------------- */

static enum status keep_link(void *user, const struct store_event *event) {
    struct link_before *before = user;
    *before = (struct link_before){event->entity_ref, event->seq, {0}, true};
    memcpy(before->hash, event->chain_hash, SHA256_BYTES);
    return STATUS_OK;
}

/* Neighbours in the log often belong to one entity. Only other events need a read of the store to
 * find the previous event of their entity. */
static enum status check_sampled(void *user, const struct store_event *event) {
    struct verification *work = user;
    struct link_before before = {.is_found = false};
    enum status status = check_event(work, event);
    if (status == STATUS_OK && event->seq > 1) {
        if (work->last.is_found && work->last.entity_ref == event->entity_ref &&
            work->last.seq + 1 == event->seq)
            before = work->last;
        else
            status = store_walk_entity_events(work->session, event->entity_ref, event->seq - 2, 1,
                                              &before, keep_link);
    }
    if (status != STATUS_OK)
        return status;
    if (event->seq == 0 || before.is_found != (event->seq > 1) ||
        (before.is_found && before.seq != event->seq - 1))
        return broken(work, event, "earlier events of the entity are missing");
    if (memcmp(event->prev_chain_hash, before.hash, SHA256_BYTES) != 0)
        return broken(work, event, "the link to the previous event of the entity is broken");
    return keep_link(&work->last, event);
}

enum status verify_sample(struct store_session *session, const struct verify_sample *sample,
                          struct verify_result *result) {
    const struct verify_options options = {.on_progress = NULL};
    struct verification work = {.session = session, .options = &options, .result = result};
    struct store_state state;
    assert(sample->stretch_count > 0 && sample->stretch_events > 0);
    memset(result, 0, sizeof(*result));
    enum status status = store_read_state(session, &state);
    if (status != STATUS_OK)
        return status;
    work.log_end = state.log_id;
    uint64_t room =
        work.log_end > sample->stretch_events ? work.log_end - sample->stretch_events : 0;
    buffer_init(&work.scratch, CHAIN_HASH_SCRATCH_BYTES);
    for (uint64_t i = 0; i < sample->stretch_count && status == STATUS_OK; i++) {
        /* A position in the part of the log for this stretch. The last stretch is at the end. */
        uint64_t part = room / sample->stretch_count, begin = room;
        uint64_t mixed = (sample->seed + i + 1) * UINT64_C(0x9e3779b97f4a7c15);
        if (i + 1 < sample->stretch_count)
            begin = part * i + (part > 0 ? (mixed >> 16) % part : 0);
        uint64_t end = begin + sample->stretch_events;
        /* Stretches of a short log overlap; no event is checked twice. */
        if (begin < work.log_id)
            begin = work.log_id;
        if (begin >= end || begin >= work.log_end)
            continue;
        work.log_id = begin;
        work.cursor = (struct uuid){{0}};
        status = check_stretch(&work, begin, end - begin, check_sampled);
    }
    if (status == STOPPED)
        status = STATUS_OK;
    buffer_release(&work.scratch);
    return status;
}

/* ---- the journals ----------------------------------------------------------------------- */

#define PAGE_TOPICS 64
#define PAGE_ROWS   1024

struct journal_checking {
    struct store_session *session;
    const struct journal_check_options *options;
    struct journal_check_result *result;
    uint64_t after_ref;
    bool has_more;
    struct arena names; /* texts of the page */
    struct slice topics[PAGE_TOPICS];
    size_t topic_count;
    /* The topic that is walked. */
    struct arena arena;
    struct store_topic topic;
    uint64_t expected_seq;
    uint64_t named;
};

static void damaged(struct journal_checking *check, uint64_t seq, const char *message) {
    const struct journal_damage damage = {check->topic.name, seq, message};
    check->result->damages++;
    if (check->named++ < JOURNAL_CHECK_NAMED_MAX && check->options->on_damage)
        check->options->on_damage(check->options->user, &damage);
}

/* ---- rows ------------------------------------------------------------------------------- */

static const char *fault_of_row(struct journal_checking *check, const struct store_journal_row *row,
                                const struct store_event *event) {
    uint8_t hash[SHA256_BYTES];
    struct store_document document;
    enum document_kind kind = entity_row(event->entity_kind)->summary;
    if (row->entity_ref != event->entity_ref)
        return "the frame is of another entity than its event";
    if (!row->payload.data)
        return memcmp(row->payload_hash, event->payload_hash, SHA256_BYTES) == 0
                   ? NULL
                   : "the frame does not have the hash of its event";
    sha256(row->payload.data, row->payload.size, hash);
    if (memcmp(hash, row->payload_hash, SHA256_BYTES) != 0)
        return "the payload does not hash to its payload_hash";
    if (kind == DOCUMENT_NONE)
        return "the frame is of no document";
    arena_reset(&check->arena);
    enum status status =
        store_load_document(check->session, kind, row->entity_ref, &check->arena, &document);
    if (status == STATUS_NOT_FOUND)
        return "the document of the frame does not exist";
    if (status == STATUS_OK && document.version == row->document_version &&
        memcmp(document.payload_hash, row->payload_hash, SHA256_BYTES) != 0)
        return "the frame differs from its document";
    return NULL;
}

static enum status check_row(void *user, const struct store_journal_row *row,
                             const struct store_event *event) {
    struct journal_checking *check = user;
    check->result->rows++;
    if (row->seq > check->topic.head_seq)
        damaged(check, row->seq, "the row is beyond the head of its topic");
    else if (row->seq > check->expected_seq)
        damaged(check, check->expected_seq, "frames from here on are missing");
    const char *fault = fault_of_row(check, row, event);
    if (fault)
        damaged(check, row->seq, fault);
    check->expected_seq = row->seq + 1;
    return STATUS_OK;
}

/* A row that cannot be read ends a walk. It is reported, and another walk begins after it. */
static enum status check_topic(struct journal_checking *check, struct slice name) {
    uint64_t rows, before;
    arena_reset(&check->arena);
    enum status status = store_read_begin(check->session);
    if (status != STATUS_OK)
        return status;
    status = store_load_topic(check->session, name, &check->arena, &check->topic);
    /* The arena is used for documents, so the name is that of the page. */
    check->topic.name = name;
    check->topic.stream_id = (struct slice){NULL, 0};
    check->named = 0;
    check->expected_seq = check->topic.oldest_seq;
    if (status != STATUS_OK)
        goto out;
    do {
        rows = check->result->rows;
        before = check->expected_seq;
        status = store_walk_journal(check->session, check->topic.ref, check->expected_seq - 1,
                                    PAGE_ROWS, check, check_row);
        if (status == STATUS_INTERNAL_ERROR && check->expected_seq <= check->topic.head_seq) {
            damaged(check, check->expected_seq++, "the row cannot be read");
            status = STATUS_OK;
        } else if (check->result->rows == rows) {
            break;
        }
    } while (status == STATUS_OK && check->expected_seq > before);
    if (status == STATUS_OK && check->expected_seq <= check->topic.head_seq)
        damaged(check, check->expected_seq, "frames from here on are missing");
out:
    store_read_end(check->session);
    check->result->topics++;
    return status;
}

/* ---- topics ----------------------------------------------------------------------------- */

static enum status add_topic(void *user, const struct store_topic *topic) {
    struct journal_checking *check = user;
    check->after_ref = topic->ref;
    check->has_more = true;
    if (topic->entity_ref != 0)
        return STATUS_OK;
    struct slice name = arena_copy(&check->names, topic->name);
    if (!name.data)
        return STATUS_OUT_OF_MEMORY;
    check->topics[check->topic_count++] = name;
    return STATUS_OK;
}

enum status journal_check(struct store_session *session,
                          const struct journal_check_options *options,
                          struct journal_check_result *result) {
    struct journal_checking *check = calloc(1, sizeof(*check));
    memset(result, 0, sizeof(*result));
    if (!check)
        return STATUS_OUT_OF_MEMORY;
    check->session = session;
    check->options = options;
    check->result = result;
    arena_init(&check->names, VERIFY_ENTITY_BYTES_MAX);
    arena_init(&check->arena, REPROJECT_STORED_BYTES_MAX);
    enum status status;
    do {
        check->topic_count = 0;
        check->has_more = false;
        arena_reset(&check->names);
        status = store_walk_topics(session, check->after_ref, PAGE_TOPICS, check, add_topic);
        for (size_t i = 0; i < check->topic_count && status == STATUS_OK; i++)
            status = check_topic(check, check->topics[i]);
    } while (status == STATUS_OK && check->has_more);
    uint64_t ref = 0, seq = 0;
    if (status == STATUS_OK)
        status = store_find_stray_row(session, &ref, &seq);
    if (status == STATUS_OK) {
        char name[64];
        snprintf(name, sizeof(name), "topic_ref %llu", (unsigned long long)ref);
        check->topic = (struct store_topic){.name = slice_of(name)};
        check->named = 0;
        damaged(check, seq, "the row is of a topic that does not exist");
    } else if (status == STATUS_NOT_FOUND) {
        status = STATUS_OK;
    }
    arena_release(&check->names);
    arena_release(&check->arena);
    free(check);
    return status;
}

/* ---- the documents ---------------------------------------------------------------------- */

#define PAGE_DOCUMENTS 1024
#define KEY_BYTES_MAX  4096

struct document_checking {
    struct store_session *session;
    const struct document_check_options *options;
    struct document_check_result *result;
    struct arena arena; /* rows of one document */
    uint64_t after_ref;
    uint64_t count; /* documents of this page */
};

/* A document of another projection version may have other members until it is rebuilt. */
static bool is_of_other_version(const struct store_document *document,
                                const struct store_checkpoint *checkpoint) {
    uint8_t hash[SHA256_BYTES];
    return !slice_equal(checkpoint->projection_version, SLICE(PROJECTION_VERSION_DEFAULT)) &&
           summary_hash(document->payload, hash) == STATUS_OK &&
           memcmp(hash, checkpoint->summary_hash, SHA256_BYTES) == 0;
}

/* An entity without both rows is not projected. */
static enum status check_document(void *user, const struct store_document *document) {
    struct document_checking *check = user;
    struct store_entity entity;
    struct store_checkpoint checkpoint;
    union any_summary summary;
    struct buffer key;
    const char *fault = NULL;
    check->after_ref = document->entity_ref;
    check->count++;
    arena_reset(&check->arena);
    enum status status =
        store_load_entity_ref(check->session, document->entity_ref, &check->arena, &entity);
    if (status != STATUS_OK)
        return status;
    check->result->documents += document->payload.data != NULL;
    enum status found = store_load_checkpoint(check->session, document->kind, document->entity_ref,
                                              &check->arena, &checkpoint);
    if (!document->payload.data)
        fault = found == STATUS_NOT_FOUND ? NULL : "the document is missing or cannot be read";
    else if (!store_document_is_whole(document))
        fault = "the payload does not hash to its payload_hash";
    else if (found != STATUS_OK)
        fault = "the checkpoint is missing or cannot be read";
    else if (!fold_document(document, &checkpoint, entity.id, &summary) &&
             !is_of_other_version(document, &checkpoint))
        fault = "the document does not agree with its checkpoint";
    if (!fault)
        return STATUS_OK;
    buffer_init(&key, KEY_BYTES_MAX);
    if (check->result->damages++ < DOCUMENT_CHECK_NAMED_MAX && check->options->on_damage &&
        summary_document_key(document->kind, entity.id, &key) == STATUS_OK)
        check->options->on_damage(check->options->user, buffer_slice(&key), fault);
    buffer_release(&key);
    return STATUS_OK;
}

enum status document_check(struct store_session *session,
                           const struct document_check_options *options,
                           struct document_check_result *result) {
    struct document_checking check = {.session = session, .options = options, .result = result};
    enum status status = STATUS_OK;
    *result = (struct document_check_result){0};
    arena_init(&check.arena, REPROJECT_STORED_BYTES_MAX);
    for (enum document_kind kind = 0; status == STATUS_OK && kind < DOCUMENT_KIND_COUNT; kind++) {
        check.after_ref = 0;
        do {
            check.count = 0;
            status = store_read_begin(session);
            if (status != STATUS_OK)
                break;
            status = store_walk_documents(session, kind, check.after_ref, PAGE_DOCUMENTS, &check,
                                          check_document);
            store_read_end(session);
        } while (status == STATUS_OK && check.count == PAGE_DOCUMENTS);
    }
    arena_release(&check.arena);
    return status;
}
