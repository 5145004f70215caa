/* A publisher on a real store: commits events of two runs in turn, with a summary row for each, and
 * tells the hub, as the writer does. Everything about a frame follows from its topic and seq. */
#ifndef PUBLISHER_H
#define PUBLISHER_H

#include <dirent.h>
#include <unistd.h>

#include "hub/hub.h"
#include "store/store.h"
#include "test.h"

#define PUBLISHER_BATCH_MAX 64
#define PUBLISHER_KNOWN_MAX 4096
#define RUN_TOPIC           "run:r:events"
#define OTHER_TOPIC         "run:s:events"
#define SUMMARIES           "runtime.run_summaries"

enum { RUN_TOPIC_REF = 101, OTHER_TOPIC_REF };

struct publisher {
    char folder[64];
    struct store *store;
    struct store_session *session;
    struct hub *hub; /* may be NULL */
    /* Runs after each commit, before the hub is told; may be NULL. */
    void (*committed)(struct publisher *publisher);
    struct store_entity runs[2];
    struct store_topic topics[2];
    uint64_t summaries_ref;
    uint64_t log_id;
    uint64_t seed; /* 0: r and s in turn; UINT64_MAX: s only; else mostly s, by chance */
    uint8_t which[PUBLISHER_KNOWN_MAX]; /* the run of each event, by log id */
    struct uuid7_generator ids;
};

static inline struct publisher *publisher_open(struct hub *hub) {
    struct publisher *publisher = calloc(1, sizeof(*publisher));
    struct store_message message;
    strcpy(publisher->folder, "/tmp/khala-delivery-XXXXXX");
    assert_non_null(mkdtemp(publisher->folder));
    assert_ok(store_open(&publisher->store, publisher->folder, true, &message));
    assert_ok(store_session_open(publisher->store, STORE_WRITE, &publisher->session));
    assert_ok(uuid7_generator_init(&publisher->ids, NULL));
    publisher->hub = hub;
    publisher->runs[0] = (struct store_entity){.ref = 101,
                                               .kind = ENTITY_RUN,
                                               .id = SLICE("r"),
                                               .owner.user_id = SLICE("u"),
                                               .status = SLICE("running")};
    publisher->runs[1] = (struct store_entity){.ref = 102,
                                               .kind = ENTITY_RUN,
                                               .id = SLICE("s"),
                                               .owner.guest_scope = SLICE("g"),
                                               .status = SLICE("running")};
    publisher->topics[0] = (struct store_topic){
        RUN_TOPIC_REF, SLICE(RUN_TOPIC), SLICE("runtime.run.r.events"), 101, 1, 0, 0, 0};
    publisher->topics[1] = (struct store_topic){
        OTHER_TOPIC_REF, SLICE(OTHER_TOPIC), SLICE("runtime.run.s.events"), 102, 1, 0, 0, 0};
    /* A new store has the shared topics. */
    struct arena arena;
    struct store_topic summaries;
    arena_init(&arena, 65536);
    assert_ok(store_load_topic(publisher->session, SLICE(SUMMARIES), &arena, &summaries));
    publisher->summaries_ref = summaries.ref;
    arena_release(&arena);
    return publisher;
}

static inline void publisher_close(struct publisher *publisher) {
    store_session_close(publisher->session);
    store_close(publisher->store);
    DIR *folder = opendir(publisher->folder);
    for (struct dirent *entry; folder && (entry = readdir(folder));)
        (void)unlinkat(dirfd(folder), entry->d_name, 0);
    if (folder)
        closedir(folder);
    rmdir(publisher->folder);
    free(publisher);
}

static inline size_t publisher_choose(struct publisher *publisher) {
    if (publisher->seed == 0)
        return publisher->log_id % 2;
    return publisher->seed == UINT64_MAX || test_random(&publisher->seed) % 8 > 0;
}

/* Events of r and s, a summary row each. */
static inline void publisher_commit(struct publisher *publisher, size_t count) {
    static _Thread_local char texts[PUBLISHER_BATCH_MAX][2][32];
    struct store_event events[PUBLISHER_BATCH_MAX] = {0};
    struct store_entity states[PUBLISHER_BATCH_MAX];
    struct store_journal_row rows[PUBLISHER_BATCH_MAX] = {0};
    bool is_first = publisher->log_id == 0;
    assert_true(count > 0 && count <= PUBLISHER_BATCH_MAX);
    for (size_t i = 0; i < count; i++) {
        size_t which = publisher_choose(publisher);
        struct store_entity *run = &publisher->runs[which];
        uint64_t log_id = ++publisher->log_id;
        if (log_id < PUBLISHER_KNOWN_MAX)
            publisher->which[log_id] = (uint8_t)which;
        struct uuid id = uuid7_next(&publisher->ids, 1700000000000 + log_id);
        run->head_seq++;
        snprintf(texts[i][0], 32, "{\"n\":%llu}", (unsigned long long)run->head_seq);
        snprintf(texts[i][1], 32, "{\"n\":%llu}", (unsigned long long)log_id);
        events[i] = (struct store_event){.log_id = log_id,
                                         .entity_ref = run->ref,
                                         .entity_kind = ENTITY_RUN,
                                         .entity_id = run->id,
                                         .seq = run->head_seq,
                                         .type = SLICE("run.log"),
                                         .payload = slice_of(texts[i][0]),
                                         .event_id = id,
                                         .cursor = id,
                                         .owner = run->owner,
                                         .recorded_at_ms = uuid7_timestamp_ms(&id),
                                         .chain_version = STORE_CHAIN_VERSION};
        states[i] = *run;
        rows[i] = (struct store_journal_row){.topic_ref = publisher->summaries_ref,
                                             .seq = log_id,
                                             .log_id = log_id,
                                             .entity_ref = run->ref,
                                             .document_version = log_id,
                                             .payload = slice_of(texts[i][1]),
                                             .published_at_ms = log_id};
        sha256(rows[i].payload.data, rows[i].payload.size, rows[i].payload_hash);
    }
    /* The publisher does not know a floor that pruning has raised; the store never lowers one. */
    struct arena arena;
    struct store_topic summaries;
    arena_init(&arena, 65536);
    assert_ok(store_load_topic(publisher->session, SLICE(SUMMARIES), &arena, &summaries));
    summaries.head_seq = publisher->log_id;
    struct store_topic topics[3] = {summaries, publisher->topics[0], publisher->topics[1]};
    struct store_batch batch = {.events = events,
                                .event_count = count,
                                .entities = publisher->runs,
                                .entity_count = is_first ? 2 : 0,
                                .topics = topics,
                                .topic_count = is_first ? 3 : 1,
                                .journal = rows,
                                .journal_count = count};
    if (store_commit(publisher->session, &batch) != STATUS_OK)
        fail_msg("%s", store_session_error(publisher->session));
    if (publisher->committed)
        publisher->committed(publisher);
    if (publisher->hub)
        hub_publish(publisher->hub, &batch, states);
    arena_release(&arena);
}

static inline void publisher_prune(struct publisher *publisher, uint64_t topic_ref,
                                   uint64_t below_seq) {
    uint64_t pruned;
    assert_ok(store_prune(publisher->session, topic_ref, below_seq, 5000, &pruned));
}

static inline uint64_t frame_number(const struct frame *frame) {
    char text[32] = "";
    assert_true(frame->content.payload.size < sizeof(text));
    memcpy(text, frame->content.payload.data, frame->content.payload.size);
    return strtoull(text + strlen("{\"n\":"), NULL, 10);
}

#endif
