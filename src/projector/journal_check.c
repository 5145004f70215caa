#include "projector/journal_check.h"

#include <stdio.h>
#include <stdlib.h>

#include "base/limits.h"

#define PAGE_TOPICS 64
#define PAGE_ROWS   1024

struct journal_checking {
    struct store_session *session;
    const struct journal_check_options *options;
    struct journal_check_result *result;
    uint64_t after_ref;
    bool has_more;
    struct arena names; /* of the page */
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

/* ---- rows --------------------------------------------------------------------------------- */

static const char *fault_of(struct journal_checking *check, const struct store_journal_row *row,
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
    const char *fault = fault_of(check, row, event);
    if (fault)
        damaged(check, row->seq, fault);
    check->expected_seq = row->seq + 1;
    return STATUS_OK;
}

/* A row that cannot be read ends the walk. It is named, and the walk goes on behind it. */
static enum status walk_rows(struct journal_checking *check) {
    enum status status = STATUS_OK;
    uint64_t before;
    do {
        uint64_t rows = check->result->rows;
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
    return status;
}

static enum status check_topic(struct journal_checking *check, struct slice name) {
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
    if (status == STATUS_OK)
        status = walk_rows(check);
    if (status == STATUS_OK && check->expected_seq <= check->topic.head_seq)
        damaged(check, check->expected_seq, "frames from here on are missing");
    store_read_end(check->session);
    check->result->topics++;
    return status;
}

/* ---- topics ------------------------------------------------------------------------------- */

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

static enum status check_topics(struct journal_checking *check) {
    enum status status = STATUS_OK;
    do {
        check->topic_count = 0;
        check->has_more = false;
        arena_reset(&check->names);
        status = store_walk_topics(check->session, check->after_ref, PAGE_TOPICS, check, add_topic);
        for (size_t i = 0; i < check->topic_count && status == STATUS_OK; i++)
            status = check_topic(check, check->topics[i]);
    } while (status == STATUS_OK && check->has_more);
    return status;
}

static enum status check_strays(struct journal_checking *check) {
    char name[64];
    uint64_t ref = 0;
    uint64_t seq = 0;
    enum status status = store_find_stray_row(check->session, &ref, &seq);
    if (status != STATUS_OK)
        return status == STATUS_NOT_FOUND ? STATUS_OK : status;
    snprintf(name, sizeof(name), "topic_ref %llu", (unsigned long long)ref);
    check->topic = (struct store_topic){.name = slice_of(name)};
    check->named = 0;
    damaged(check, seq, "the row is of a topic that does not exist");
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
    enum status status = check_topics(check);
    if (status == STATUS_OK)
        status = check_strays(check);
    arena_release(&check->names);
    arena_release(&check->arena);
    free(check);
    return status;
}
