/* A writer on a real store in a folder of its own, and ways to ask it that wait for the answer. */
#ifndef WRITER_FIXTURE_H
#define WRITER_FIXTURE_H

#include <dirent.h>
#include <pthread.h>
#include <unistd.h>

#include "authority/append_read.h"
#include "authority/chain_hash.h"
#include "authority/writer.h"
#include "test.h"

#define FIXTURE_BODY_BYTES_MAX  ((size_t)1 << 20)
#define FIXTURE_ARENA_BYTES_MAX ((size_t)64 << 20)

/* Requests that travel together; freed with the fixture. */
struct asked {
    struct append_group group;
    pthread_mutex_t lock;
    pthread_cond_t answered;
    bool is_answered;
    struct asked *next;
    struct append_request requests[];
};

/* Holds the writer inside a commit, so that what is posted meanwhile becomes one batch. */
struct writer_gate {
    pthread_mutex_t lock;
    pthread_cond_t changed;
    bool is_shut;
    bool is_held;
};

struct fixture {
    char folder[64];
    uint64_t reserve_bytes; /* of the disk */
    struct store *store;
    struct writer *writer;
    struct writer_options options;
    struct policy_table policies;
    struct clock_manual clock;
    struct append_parser reader;
    struct writer_gate gate;
    struct asked *asked;
};

static inline void fixture_on_commit(void *user, const struct store_batch *batch,
                                     const struct store_entity *states) {
    struct fixture *fixture = user;
    struct writer_gate *gate = &fixture->gate;
    assert_non_null(batch);
    for (size_t i = 0; i < batch->event_count; i++)
        assert_int_equal(states[i].ref, batch->events[i].entity_ref);
    pthread_mutex_lock(&gate->lock);
    while (gate->is_shut) {
        gate->is_held = true;
        pthread_cond_broadcast(&gate->changed);
        pthread_cond_wait(&gate->changed, &gate->lock);
    }
    gate->is_held = false;
    pthread_mutex_unlock(&gate->lock);
}

static inline void fixture_open(struct fixture *fixture) {
    struct store_message message;
    assert_ok(store_open(&fixture->store, fixture->folder, true, &message));
    store_set_reserve(fixture->store, fixture->reserve_bytes);
    fixture->options.store = fixture->store;
    assert_ok(writer_start(&fixture->writer, &fixture->options));
}

static inline void fixture_close(struct fixture *fixture) {
    writer_stop(fixture->writer);
    store_close(fixture->store);
}

static inline void fixture_restart(struct fixture *fixture) {
    fixture_close(fixture);
    fixture_open(fixture);
}

static inline struct fixture *fixture_new(void) {
    struct fixture *fixture = calloc(1, sizeof(*fixture));
    struct store_message message;
    strcpy(fixture->folder, "/tmp/khala-writer-XXXXXX");
    assert_non_null(mkdtemp(fixture->folder));
    assert_ok(store_migrate(fixture->folder, &message));
    policy_table_init(&fixture->policies);
    fixture->clock.reading = (struct clock_reading){1700000000000, 1000000000};
    append_parser_init(&fixture->reader, FIXTURE_BODY_BYTES_MAX);
    pthread_mutex_init(&fixture->gate.lock, NULL);
    pthread_cond_init(&fixture->gate.changed, NULL);
    fixture->options = (struct writer_options){
        .policies = &fixture->policies,
        .on_commit = fixture_on_commit,
        .user = fixture,
        .group_max = 4096,
        .bytes_max = 1u << 30,
        .clock_read = clock_manual_read,
        .clock_user = &fixture->clock,
    };
    return fixture;
}

static inline void fixture_free(struct fixture *fixture) {
    while (fixture->asked) {
        struct asked *next = fixture->asked->next;
        arena_release(&fixture->asked->group.arena);
        free(fixture->asked);
        fixture->asked = next;
    }
    append_parser_release(&fixture->reader);
    DIR *folder = opendir(fixture->folder);
    for (struct dirent *entry; folder && (entry = readdir(folder));)
        (void)unlinkat(dirfd(folder), entry->d_name, 0);
    closedir(folder);
    rmdir(fixture->folder);
    free(fixture);
}

/* A new fixture with a publish rate that no test reaches. */
static inline struct fixture *fixture_new_unlimited(void) {
    struct fixture *fixture = fixture_new();
    for (size_t row = 0; row < POLICY_ROW_COUNT; row++)
        fixture->policies.rows[row].publish_rate_per_second = 1000000;
    return fixture;
}

static inline int fixture_setup(void **state) {
    struct fixture *fixture = fixture_new_unlimited();
    fixture_open(fixture);
    *state = fixture;
    return 0;
}

/* ---- asking ---- */

static inline void asked_done(struct append_group *group) {
    struct asked *asked = group->user;
    pthread_mutex_lock(&asked->lock);
    asked->is_answered = true;
    pthread_cond_signal(&asked->answered);
    pthread_mutex_unlock(&asked->lock);
}

static inline struct asked *asked_new(struct fixture *fixture, size_t count) {
    struct asked *asked = calloc(1, sizeof(*asked) + count * sizeof(asked->requests[0]));
    pthread_mutex_init(&asked->lock, NULL);
    pthread_cond_init(&asked->answered, NULL);
    asked->group.requests = asked->requests;
    asked->group.request_count = count;
    asked->group.done = asked_done;
    asked->group.user = asked;
    arena_init(&asked->group.arena, FIXTURE_ARENA_BYTES_MAX);
    asked->next = fixture->asked;
    fixture->asked = asked;
    return asked;
}

static inline struct json_value parsed(const char *json) {
    struct json_limits limits = {FIXTURE_BODY_BYTES_MAX, JSON_DEPTH_MAX};
    struct json_value value;
    assert_ok(json_parse(slice_of(json), &limits, &value));
    return value;
}

/* One request of a single endpoint, posted but not waited for. id may be NULL. */
static inline struct asked *post(struct fixture *fixture, enum append_kind kind, const char *id,
                                 const char *json) {
    struct asked *asked = asked_new(fixture, 1);
    struct slice path_id = id ? slice_of(id) : (struct slice){NULL, 0};
    enum status status = append_read(&fixture->reader, kind, path_id, parsed(json),
                                     &asked->group.arena, &asked->requests[0]);
    assert_int_equal(status, asked->requests[0].status);
    assert_ok(writer_post(fixture->writer, &asked->group));
    return asked;
}

/* Items of a batch in one group. */
static inline struct asked *post_items(struct fixture *fixture, size_t count,
                                       const char *const items[]) {
    struct asked *asked = asked_new(fixture, count);
    for (size_t i = 0; i < count; i++) {
        enum status status = append_read_item(&fixture->reader, parsed(items[i]),
                                              &asked->group.arena, &asked->requests[i]);
        assert_int_equal(status, asked->requests[i].status);
    }
    assert_ok(writer_post(fixture->writer, &asked->group));
    return asked;
}

static inline struct append_request *wait_for(struct asked *asked) {
    pthread_mutex_lock(&asked->lock);
    while (!asked->is_answered)
        pthread_cond_wait(&asked->answered, &asked->lock);
    pthread_mutex_unlock(&asked->lock);
    return asked->requests;
}

static inline struct append_request *ask(struct fixture *fixture, enum append_kind kind,
                                         const char *id, const char *json) {
    return wait_for(post(fixture, kind, id, json));
}

static inline struct append_request *ask_ok(struct fixture *fixture, enum append_kind kind,
                                            const char *id, const char *json) {
    struct append_request *request = ask(fixture, kind, id, json);
    assert_int_equal(request->status, STATUS_OK);
    return request;
}

static inline void refused(struct fixture *fixture, enum append_kind kind, const char *id,
                           const char *json, enum status status) {
    const struct append_request *request = ask(fixture, kind, id, json);
    assert_string_equal(status_code(request->status), status_code(status));
    assert_int_equal(request->event.log_id, 0);
}

/* Everything posted between gate_shut and gate_open is one batch. */
static inline void gate_shut(struct fixture *fixture) {
    struct writer_gate *gate = &fixture->gate;
    pthread_mutex_lock(&gate->lock);
    gate->is_shut = true;
    pthread_mutex_unlock(&gate->lock);
    (void)post(fixture, APPEND_AUDIT_EVENT, NULL, "{\"event_type\":\"gate\"}");
    pthread_mutex_lock(&gate->lock);
    while (!gate->is_held)
        pthread_cond_wait(&gate->changed, &gate->lock);
    pthread_mutex_unlock(&gate->lock);
}

static inline void gate_open(struct fixture *fixture) {
    struct writer_gate *gate = &fixture->gate;
    pthread_mutex_lock(&gate->lock);
    gate->is_shut = false;
    pthread_cond_broadcast(&gate->changed);
    pthread_mutex_unlock(&gate->lock);
}

/* ---- looking at the log ---- */

struct log_check {
    struct store *store;
    uint64_t log_id;
    struct uuid cursor;
    struct buffer scratch;
};

/* The log has no gap, cursors rise, hashes are right, and each event follows the one before. */
static inline enum status check_event(void *user, const struct store_event *event) {
    struct log_check *check = user;
    uint8_t digest[SHA256_BYTES];
    assert_int_equal(event->log_id, check->log_id + 1);
    assert_true(check->log_id == 0 || uuid_compare(&event->cursor, &check->cursor) > 0);
    sha256(event->payload.data, event->payload.size, digest);
    assert_memory_equal(digest, event->payload_hash, SHA256_BYTES);
    assert_ok(chain_hash(event, &check->scratch, digest));
    assert_memory_equal(digest, event->chain_hash, SHA256_BYTES);
    check->log_id = event->log_id;
    check->cursor = event->cursor;
    return STATUS_OK;
}

struct chain_check {
    uint64_t seq;
    uint8_t hash[SHA256_BYTES];
};

static inline enum status check_link(void *user, const struct store_event *event) {
    struct chain_check *chain = user;
    assert_int_equal(event->seq, chain->seq + 1);
    assert_memory_equal(event->prev_chain_hash, chain->hash, SHA256_BYTES);
    memcpy(chain->hash, event->chain_hash, SHA256_BYTES);
    chain->seq = event->seq;
    return STATUS_OK;
}

static inline enum status check_chain(void *user, const struct store_entity *entity) {
    struct log_check *check = user;
    struct store_session *session;
    struct chain_check chain = {0};
    assert_ok(store_session_open(check->store, STORE_READ, &session));
    assert_ok(store_walk_entity_events(session, entity->ref, 0, UINT64_MAX, &chain, check_link));
    assert_int_equal(chain.seq, entity->head_seq);
    assert_memory_equal(chain.hash, entity->head_hash, SHA256_BYTES);
    store_session_close(session);
    return STATUS_OK;
}

/* How many events the log holds; all of it was checked. */
static inline uint64_t checked_log(struct fixture *fixture) {
    struct log_check check = {.store = fixture->store};
    struct store_session *session;
    buffer_init(&check.scratch, CHAIN_HASH_SCRATCH_BYTES);
    assert_ok(store_session_open(fixture->store, STORE_READ, &session));
    assert_ok(store_walk_log(session, 0, UINT64_MAX, &check, check_event));
    for (size_t kind = 0; kind < ENTITY_KIND_COUNT; kind++)
        assert_ok(store_walk_entities(session, (enum entity_kind)kind, 0, UINT64_MAX, &check,
                                      check_chain));
    store_session_close(session);
    buffer_release(&check.scratch);
    return check.log_id;
}

/* Ends every test of the writer: its log must be right. */
static inline int fixture_teardown(void **state) {
    struct fixture *fixture = *state;
    (void)checked_log(fixture);
    fixture_close(fixture);
    fixture_free(fixture);
    return 0;
}

#endif
