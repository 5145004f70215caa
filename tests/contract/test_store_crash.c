/* kill -9 at any point: what was acknowledged is there, and no batch is there in part. */
#include "backend.h"
#include "rows.h"

#include <signal.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#define ROUNDS       30
#define BATCH_MAX    40
#define SEED_DEFAULT 20240511

/* The size of a batch follows from its first event, so that the parent knows where batches end. */
static uint64_t batch_size(uint64_t first) {
    uint64_t seed = first;
    return 1 + test_random(&seed) % BATCH_MAX;
}

static enum status commit_batch(struct store_session *session, uint64_t first) {
    struct store_event events[BATCH_MAX];
    struct store_journal_row rows[BATCH_MAX];
    struct rows_text key;
    uint64_t count = batch_size(first), last = first + count - 1;
    for (uint64_t i = 0; i < count; i++) {
        events[i] = rows_event(first + i, 1, first + i);
        rows[i] = rows_journal(1, first + i, first + i);
    }
    struct store_document document = rows_document(DOCUMENT_RUN_SUMMARY, 1, last, &key);
    struct store_checkpoint checkpoint = rows_checkpoint(DOCUMENT_RUN_SUMMARY, 1, last);
    struct store_topic topic = {.ref = 1,
                                .name = SLICE("runtime.run_summaries"),
                                .stream_id = SLICE("runtime.topic.runtime.run_summaries"),
                                .oldest_seq = 1,
                                .head_seq = last};
    return store_commit(session, &(struct store_batch){.events = events,
                                                       .event_count = count,
                                                       .journal = rows,
                                                       .journal_count = count,
                                                       .documents = &document,
                                                       .document_count = 1,
                                                       .checkpoints = &checkpoint,
                                                       .checkpoint_count = 1,
                                                       .topics = &topic,
                                                       .topic_count = 1});
}

/* Commits until it is killed, and tells what it may acknowledge. */
static void write_on(const struct fixture *fixture, int fd) {
    struct store_session *session = NULL;
    struct store_state at;
    struct store *store = fixture->backend->open(fixture->place);
    if (store_session_open(store, STORE_WRITE, &session) != STATUS_OK ||
        store_read_state(session, &at) != STATUS_OK)
        _exit(1);
    for (uint64_t first = at.log_id + 1;; first += batch_size(first)) {
        if (commit_batch(session, first) != STATUS_OK)
            _exit(2);
        uint64_t last = first + batch_size(first) - 1;
        if (write(fd, &last, sizeof(last)) != (ssize_t)sizeof(last))
            _exit(3);
    }
}

static uint64_t run_and_kill(const struct fixture *fixture, uint64_t delay_us) {
    int pipe_fds[2];
    uint64_t acknowledged = 0, last;
    assert_int_equal(pipe(pipe_fds), 0);
    pid_t child = fork();
    assert_true(child >= 0);
    if (child == 0) {
        close(pipe_fds[0]);
        write_on(fixture, pipe_fds[1]);
    }
    close(pipe_fds[1]);
    /* Once it writes, some moment later. */
    assert_int_equal(read(pipe_fds[0], &last, sizeof(last)), sizeof(last));
    acknowledged = last;
    nanosleep(&(struct timespec){0, (long)delay_us * 1000}, NULL);
    kill(child, SIGKILL);
    int result = 0;
    assert_int_equal(waitpid(child, &result, 0), child);
    assert_true(WIFSIGNALED(result) && WTERMSIG(result) == SIGKILL);
    while (read(pipe_fds[0], &last, sizeof(last)) == (ssize_t)sizeof(last))
        acknowledged = last;
    close(pipe_fds[0]);
    return acknowledged;
}

static enum status check_event(void *user, const struct store_event *event) {
    uint64_t *last = user;
    uint8_t hash[SHA256_BYTES];
    rows_hash(hash, 3 * event->log_id + 2);
    if (event->log_id != *last + 1 || event->seq != event->log_id ||
        memcmp(hash, event->chain_hash, sizeof(hash)) != 0)
        return STATUS_INTERNAL_ERROR;
    *last = event->log_id;
    return STATUS_OK;
}

static enum status check_row(void *user, const struct store_journal_row *row,
                             const struct store_event *event) {
    uint64_t *last = user;
    if (row->seq != *last + 1 || event->log_id != row->seq)
        return STATUS_INTERNAL_ERROR;
    *last = row->seq;
    return STATUS_OK;
}

static void assert_whole(struct fixture *fixture, uint64_t acknowledged) {
    struct store_document document;
    struct store_checkpoint checkpoint;
    struct store_topic topic;
    uint64_t last = 0, last_row = 0, end = 0;
    assert_ok(store_walk_log(fixture->reader, 0, UINT64_MAX, &last, check_event));
    assert_true(last >= acknowledged);
    while (end < last)
        end += batch_size(end + 1);
    assert_int_equal(end, last);
    assert_ok(store_walk_journal(fixture->reader, 1, 0, UINT64_MAX, &last_row, check_row));
    assert_int_equal(last_row, last);
    arena_reset(&fixture->arena);
    assert_ok(
        store_load_document(fixture->reader, DOCUMENT_RUN_SUMMARY, 1, &fixture->arena, &document));
    assert_ok(store_load_checkpoint(fixture->reader, DOCUMENT_RUN_SUMMARY, 1, &fixture->arena,
                                    &checkpoint));
    assert_ok(
        store_load_topic(fixture->reader, SLICE("runtime.run_summaries"), &fixture->arena, &topic));
    assert_int_equal(document.version, last);
    assert_int_equal(checkpoint.last_runtime_seq, last);
    assert_int_equal(topic.head_seq, last);
}

static void acknowledged_batches_survive_kill_9(void **state) {
    struct fixture *fixture = *state;
    const char *given = getenv("KHALA_TEST_SEED");
    uint64_t seed = given ? strtoull(given, NULL, 10) : SEED_DEFAULT;
    print_message("seed %llu (KHALA_TEST_SEED)\n", (unsigned long long)seed);
    for (int round = 0; round < ROUNDS; round++) {
        /* The child is to be the only one there. */
        store_session_close(fixture->reader);
        store_session_close(fixture->writer);
        store_close(fixture->store);
        uint64_t acknowledged = run_and_kill(fixture, test_random(&seed) % 30000);
        fixture->store = fixture->backend->open(fixture->place);
        assert_ok(store_session_open(fixture->store, STORE_WRITE, &fixture->writer));
        assert_ok(store_session_open(fixture->store, STORE_READ, &fixture->reader));
        assert_whole(fixture, acknowledged);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(acknowledged_batches_survive_kill_9),
    };
    return CONTRACT_RUN("store: crashes", tests);
}
