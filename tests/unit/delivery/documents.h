/* Run summaries in a real store: each put makes or replaces the document of a run, with its event
 * and its journal row, in one commit. Run i belongs to user "u" where i % 3 is 0, to guest "g"
 * where 1, only to organisation "o" where 2. Version and payload count the puts of the run.
 */
#ifndef DOCUMENTS_H
#define DOCUMENTS_H

#include <dirent.h>
#include <unistd.h>

#include "delivery/snapshot/snapshot.h"
#include "test.h"

#define RUNS_MAX      4096
#define RUN_REF_FIRST 100
#define PAYLOAD_MAX   200000
#define SUMMARIES     "runtime.run_summaries"

struct documents {
    char folder[64];
    struct store *store;
    struct store_session *writer;
    struct store_session *reader;
    struct uuid7_generator ids;
    uint64_t log_id;
    uint64_t head_seq;
    uint64_t versions[RUNS_MAX];
    size_t padding_bytes; /* of the next payloads */
};

/* All documents that the principal may read. */
#define VIEW_OF(principal_) (&(const struct snapshot_view){(principal_), NULL})

static inline struct documents *documents_open(void) {
    struct documents *documents = calloc(1, sizeof(*documents));
    struct store_message message;
    strcpy(documents->folder, "/tmp/khala-snapshot-XXXXXX");
    assert_non_null(mkdtemp(documents->folder));
    assert_ok(store_open(&documents->store, documents->folder, true, &message));
    assert_ok(store_session_open(documents->store, STORE_WRITE, &documents->writer));
    assert_ok(store_session_open(documents->store, STORE_READ, &documents->reader));
    assert_ok(uuid7_generator_init(&documents->ids, NULL));
    return documents;
}

static inline size_t documents_files(const struct documents *documents) {
    size_t count = 0;
    DIR *folder = opendir(documents->folder);
    assert_non_null(folder);
    for (struct dirent *entry; (entry = readdir(folder));)
        count += entry->d_name[0] != '.' && strncmp(entry->d_name, "khala.", 6) != 0;
    if (folder)
        closedir(folder);
    return count;
}

static inline void documents_close(struct documents *documents) {
    store_session_close(documents->reader);
    store_session_close(documents->writer);
    store_close(documents->store);
    assert_int_equal(documents_files(documents), 0);
    DIR *folder = opendir(documents->folder);
    for (struct dirent *entry; folder && (entry = readdir(folder));)
        (void)unlinkat(dirfd(folder), entry->d_name, 0);
    if (folder)
        closedir(folder);
    rmdir(documents->folder);
    free(documents);
}

static inline struct owner documents_owner(size_t run) {
    struct owner owner = {.user_id = {NULL, 0}};
    if (run % 3 == 0)
        owner.user_id = SLICE("u");
    else if (run % 3 == 1)
        owner.guest_scope = SLICE("g");
    else
        owner.org_id = SLICE("o");
    return owner;
}

static inline struct slice documents_payload(const struct documents *documents, size_t run,
                                             char *text) {
    int size = snprintf(text, 64, "{\"run\":%zu,\"version\":%llu,\"x\":\"", run,
                        (unsigned long long)documents->versions[run]);
    memset(text + size, 'x', documents->padding_bytes);
    memcpy(text + size + documents->padding_bytes, "\"}", 2);
    return (struct slice){text, (size_t)size + documents->padding_bytes + 2};
}

static inline void documents_put(struct documents *documents, size_t run) {
    static char text[PAYLOAD_MAX + 128];
    char id[32], key[64];
    uint64_t ref = RUN_REF_FIRST + run;
    assert_true(run < RUNS_MAX && documents->padding_bytes <= PAYLOAD_MAX);
    snprintf(id, sizeof(id), "r%zu", run);
    snprintf(key, sizeof(key), "runtime/run_summary:r%zu", run);
    bool is_new = documents->versions[run]++ == 0;
    uint64_t log_id = ++documents->log_id;
    struct uuid uuid = uuid7_next(&documents->ids, 1700000000000 + log_id);
    struct store_entity entity = {.ref = ref,
                                  .kind = ENTITY_RUN,
                                  .id = slice_of(id),
                                  .owner = documents_owner(run),
                                  .status = SLICE("running")};
    struct store_event event = {.log_id = log_id,
                                .entity_ref = ref,
                                .entity_kind = ENTITY_RUN,
                                .seq = documents->versions[run],
                                .type = SLICE("run.log"),
                                .payload = SLICE("{}"),
                                .event_id = uuid,
                                .cursor = uuid,
                                .recorded_at_ms = uuid7_timestamp_ms(&uuid),
                                .chain_version = STORE_CHAIN_VERSION};
    struct slice payload = documents_payload(documents, run, text);
    struct store_document document = {.kind = DOCUMENT_RUN_SUMMARY,
                                      .entity_ref = ref,
                                      .key = slice_of(key),
                                      .version = documents->versions[run],
                                      .payload = payload};
    struct store_journal_row row = {.topic_ref = 1,
                                    .seq = ++documents->head_seq,
                                    .log_id = log_id,
                                    .entity_ref = ref,
                                    .document_version = documents->versions[run],
                                    .payload = payload,
                                    .published_at_ms = log_id};
    sha256(payload.data, payload.size, document.payload_hash);
    sha256(payload.data, payload.size, row.payload_hash);
    struct store_topic topic = {
        1, SLICE(SUMMARIES), SLICE("runtime.topic." SUMMARIES), 0, 1, documents->head_seq, 0, 0};
    if (store_commit(documents->writer, &(struct store_batch){.entities = &entity,
                                                              .entity_count = is_new,
                                                              .events = &event,
                                                              .event_count = 1,
                                                              .topics = &topic,
                                                              .topic_count = 1,
                                                              .documents = &document,
                                                              .document_count = 1,
                                                              .journal = &row,
                                                              .journal_count = 1}) != STATUS_OK)
        fail_msg("%s", store_session_error(documents->writer));
}

static inline void documents_put_many(struct documents *documents, size_t count) {
    for (size_t i = 0; i < count; i++)
        documents_put(documents, i);
}

/* The whole array for a principal, parts joined; asserts that count and text agree. */
static inline size_t documents_read(const struct snapshot *snapshot,
                                    const struct principal *principal, struct buffer *out) {
    size_t total = 0;
    assert_ok(buffer_append_byte(out, '['));
    for (size_t i = 0; i < snapshot->part_count; i++) {
        size_t count = 77;
        size_t begin = out->size;
        if (total > 0)
            assert_ok(buffer_append_byte(out, ','));
        size_t before = out->size;
        assert_ok(snapshot_part_read(snapshot, i, VIEW_OF(principal), out, &count));
        assert_int_equal(count > 0, out->size > before);
        if (count == 0)
            out->size = begin;
        total += count;
    }
    assert_ok(buffer_append_byte(out, ']'));
    return total;
}

#endif
