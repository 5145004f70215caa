#include "base/limits.h"
#include "delivery/snapshot/snapshot.h"

#include <signal.h>
#include <sys/resource.h>

#include "documents.h"
#include "wire/canonical.h"
#include "wire/json.h"

#define BYTES_MAX (64u << 20)

static const struct principal operator_all = {.read_all = true};

struct began {
    unsigned count;
    uint64_t watermark;
    uint64_t bytes;
    uint64_t bytes_max;
    struct documents *documents; /* puts documents between the watermark and the read */
};

static void on_began(void *user, uint64_t watermark) {
    struct began *began = user;
    began->count++;
    began->watermark = watermark;
    if (began->documents)
        documents_put_many(began->documents, 10);
}

static enum status on_reserve(void *user, uint64_t bytes) {
    struct began *began = user;
    began->bytes += bytes;
    return began->bytes > began->bytes_max ? STATUS_LIMIT_REACHED : STATUS_OK;
}

static enum status build(struct documents *documents, struct began *began,
                         struct snapshot **snapshot) {
    struct snapshot_build wanted = {.row = POLICY_RUN_SUMMARIES,
                                    .policy = policy_default(POLICY_RUN_SUMMARIES),
                                    .folder = documents->folder,
                                    .user = began,
                                    .began = on_began,
                                    .reserve = on_reserve};
    enum status status = snapshot_build(&wanted, documents->reader, snapshot);
    assert_int_equal(status == STATUS_OK, wanted.reason[0] == '\0');
    return status;
}

static struct snapshot *built(struct documents *documents) {
    struct began began = {.bytes_max = UINT64_MAX};
    struct snapshot *snapshot = NULL;
    assert_ok(build(documents, &began, &snapshot));
    assert_int_equal(began.count, 1);
    assert_int_equal(began.bytes, snapshot->file_bytes);
    assert_int_equal(began.watermark, snapshot->watermark);
    return snapshot;
}

/* The runs of an array of documents, in order. Checks that each document is as in the store. */
static size_t runs_of(struct documents *documents, struct slice text, size_t *runs) {
    const struct json_limits limits = {BYTES_MAX, 8};
    struct json_value array, document;
    size_t count = 0;
    assert_ok(json_parse(text, &limits, &array));
    struct json_iterator iterator = json_iterate(array);
    while (json_next_element(&iterator, &document)) {
        static char payload[PAYLOAD_MAX + 128];
        char key[64], hash[PAYLOAD_HASH_SIZE];
        uint8_t digest[SHA256_BYTES];
        uint64_t version, run;
        struct json_field fields[] = {{.name = SLICE("doc_key")},
                                      {.name = SLICE("doc_version")},
                                      {.name = SLICE("payload")},
                                      {.name = SLICE("payload_hash")}};
        struct json_field inner[] = {{.name = SLICE("run")}};
        assert_ok(json_read_members(document, fields, 4));
        assert_ok(json_read_members(fields[2].value, inner, 1));
        assert_true(json_u64(inner[0].value, RUNS_MAX, &run));
        assert_true(json_u64(fields[1].value, UINT64_MAX, &version));
        snprintf(key, sizeof(key), "runtime/run_summary:r%zu", (size_t)run);
        assert_true(json_string_is(fields[0].value, slice_of(key)));
        assert_int_equal(version, documents->versions[run]);
        assert_true(
            slice_equal(fields[2].value.raw, documents_payload(documents, (size_t)run, payload)));
        sha256(fields[2].value.raw.data, fields[2].value.raw.size, digest);
        payload_hash_text(digest, hash);
        assert_true(json_string_is(fields[3].value, (struct slice){hash, sizeof(hash) - 1}));
        runs[count++] = (size_t)run;
    }
    return count;
}

static void assert_view(struct documents *documents, const struct snapshot *snapshot,
                        const struct principal *principal, size_t remainder, size_t divisor) {
    static size_t runs[RUNS_MAX];
    struct buffer text;
    buffer_init(&text, BYTES_MAX);
    size_t count = documents_read(snapshot, principal, &text);
    assert_int_equal(runs_of(documents, buffer_slice(&text), runs), count);
    for (size_t i = 0; i < count; i++)
        assert_int_equal(runs[i], i * divisor + remainder);
    size_t wanted = remainder < snapshot->document_count
                        ? (snapshot->document_count - remainder + divisor - 1) / divisor
                        : 0;
    assert_int_equal(count, wanted);
    buffer_release(&text);
}

static void a_snapshot_holds_every_document_as_the_store_does(void **state) {
    (void)state;
    struct documents *documents = documents_open();
    documents_put_many(documents, 600);
    documents_put_many(documents, 5);
    struct snapshot *snapshot = built(documents);
    assert_int_equal(snapshot->document_count, 600);
    assert_int_equal(snapshot->watermark, 605);
    assert_slice(snapshot->topic, SUMMARIES);
    assert_int_equal(strlen(snapshot->epoch.text), STORE_EPOCH_SIZE + strlen(".0"));
    assert_true(snapshot->part_count >= 600 / SNAPSHOT_PART_DOCUMENTS_MAX);
    assert_view(documents, snapshot, &operator_all, 0, 1);
    snapshot_unref(snapshot);
    documents_close(documents);
}

static void a_topic_without_documents_has_a_snapshot_without_parts(void **state) {
    (void)state;
    struct documents *documents = documents_open();
    struct snapshot *snapshot = built(documents);
    assert_int_equal(snapshot->part_count, 0);
    assert_int_equal(snapshot->watermark, 0);
    assert_view(documents, snapshot, &operator_all, 0, 1);
    snapshot_unref(snapshot);
    documents_close(documents);
}

static void a_principal_gets_only_its_own_documents(void **state) {
    (void)state;
    struct documents *documents = documents_open();
    documents_put_many(documents, 700);
    struct snapshot *snapshot = built(documents);
    const struct principal user = {.identity = {.user_id = SLICE("u")}};
    const struct principal guest = {.identity = {.guest_scope = SLICE("g"), .org_id = SLICE("p")}};
    const struct principal member = {.identity = {.user_id = SLICE("v"), .org_id = SLICE("o")}};
    const struct principal stranger = {.identity = {.user_id = SLICE("v")}};
    const struct principal nothing = {.read_all = false};
    assert_view(documents, snapshot, &user, 0, 3);
    assert_view(documents, snapshot, &guest, 1, 3);
    assert_view(documents, snapshot, &member, 2, 3);
    struct buffer text;
    buffer_init(&text, 64);
    assert_int_equal(documents_read(snapshot, &stranger, &text), 0);
    assert_int_equal(documents_read(snapshot, &nothing, &text), 0);
    assert_slice(buffer_slice(&text), "[][]");
    buffer_release(&text);
    snapshot_unref(snapshot);
    documents_close(documents);
}

static void parts_without_documents_of_a_principal_are_passed_over(void **state) {
    (void)state;
    struct documents *documents = documents_open();
    /* A part for each document: of u, g and o in turn. */
    documents->padding_bytes = SNAPSHOT_PART_BYTES;
    documents_put_many(documents, 7);
    struct snapshot *snapshot = built(documents);
    const struct principal user = {.identity = {.user_id = SLICE("u")}};
    const struct principal member = {.identity = {.user_id = SLICE("v"), .org_id = SLICE("o")}};
    const struct principal stranger = {.identity = {.user_id = SLICE("v")}};
    assert_int_equal(snapshot->part_count, 7);
    assert_int_equal(snapshot_part_next(snapshot, 0, VIEW_OF(&user)), 0);
    assert_int_equal(snapshot_part_next(snapshot, 1, VIEW_OF(&user)), 3);
    assert_int_equal(snapshot_part_next(snapshot, 4, VIEW_OF(&user)), 6);
    assert_int_equal(snapshot_part_next(snapshot, 7, VIEW_OF(&user)), 7);
    assert_int_equal(snapshot_part_next(snapshot, 0, VIEW_OF(&member)), 2);
    assert_int_equal(snapshot_part_next(snapshot, 6, VIEW_OF(&member)), 7);
    assert_int_equal(snapshot_part_next(snapshot, 0, VIEW_OF(&stranger)), 7);
    assert_int_equal(snapshot_part_next(snapshot, 5, VIEW_OF(&operator_all)), 5);
    snapshot_unref(snapshot);
    documents_close(documents);
}

static void parts_are_bounded_and_a_large_document_has_its_own_part(void **state) {
    (void)state;
    struct documents *documents = documents_open();
    documents->padding_bytes = 150000;
    documents_put(documents, 1);
    documents->padding_bytes = 0;
    documents_put(documents, 0);
    documents_put(documents, 2);
    struct snapshot *snapshot = built(documents);
    assert_int_equal(snapshot->part_count, 3);
    assert_true(snapshot->parts[1].text_bytes > 150000);
    assert_int_equal(snapshot->parts[1].count, 1);
    snapshot_unref(snapshot);
    documents->padding_bytes = 1000;
    documents_put_many(documents, 1000);
    snapshot = built(documents);
    for (size_t i = 0; i < snapshot->part_count; i++) {
        assert_in_range(snapshot->parts[i].text_bytes, 1, SNAPSHOT_PART_BYTES);
        assert_in_range(snapshot->parts[i].count, 1, SNAPSHOT_PART_DOCUMENTS_MAX);
    }
    assert_view(documents, snapshot, &operator_all, 0, 1);
    snapshot_unref(snapshot);
    documents_close(documents);
}

static void documents_committed_during_a_build_are_not_in_it(void **state) {
    (void)state;
    struct documents *documents = documents_open();
    documents_put_many(documents, 300);
    struct began began = {.bytes_max = UINT64_MAX, .documents = documents};
    struct snapshot *snapshot = NULL;
    assert_ok(build(documents, &began, &snapshot));
    assert_int_equal(snapshot->watermark, 300);
    for (size_t i = 0; i < 10; i++)
        documents->versions[i]--;
    assert_view(documents, snapshot, &operator_all, 0, 1);
    snapshot_unref(snapshot);
    for (size_t i = 0; i < 10; i++)
        documents->versions[i]++;
    snapshot = built(documents);
    assert_int_equal(snapshot->watermark, 310);
    assert_view(documents, snapshot, &operator_all, 0, 1);
    snapshot_unref(snapshot);
    documents_close(documents);
}

static void a_build_ends_when_it_may_not_grow(void **state) {
    (void)state;
    struct documents *documents = documents_open();
    documents_put_many(documents, 600);
    struct began began = {.bytes_max = 30000};
    struct snapshot *snapshot = NULL;
    assert_int_equal(build(documents, &began, &snapshot), STATUS_LIMIT_REACHED);
    assert_null(snapshot);
    snapshot = built(documents);
    snapshot_unref(snapshot);
    documents_close(documents);
}

static void a_full_disk_fails_the_build_and_leaves_no_file(void **state) {
    (void)state;
    struct documents *documents = documents_open();
    struct rlimit limit;
    documents->padding_bytes = 2000;
    documents_put_many(documents, 600);
    assert_int_equal(getrlimit(RLIMIT_FSIZE, &limit), 0);
    rlim_t before = limit.rlim_cur;
    limit.rlim_cur = 300000;
    assert_int_equal(setrlimit(RLIMIT_FSIZE, &limit), 0);
    struct began began = {.bytes_max = UINT64_MAX};
    struct snapshot *snapshot = NULL;
    enum status status = build(documents, &began, &snapshot);
    limit.rlim_cur = before;
    assert_int_equal(setrlimit(RLIMIT_FSIZE, &limit), 0);
    assert_int_equal(status, STATUS_STORE_UNAVAILABLE);
    assert_int_equal(documents_files(documents), 0);
    snapshot = built(documents);
    assert_view(documents, snapshot, &operator_all, 0, 1);
    snapshot_unref(snapshot);
    documents_close(documents);
}

static void a_missing_folder_fails_the_build(void **state) {
    (void)state;
    struct documents *documents = documents_open();
    documents_put_many(documents, 2);
    char kept[64];
    strcpy(kept, documents->folder);
    strcpy(documents->folder, "/tmp/khala-snapshot-that-is-not-there");
    struct began began = {.bytes_max = UINT64_MAX};
    struct snapshot *snapshot = NULL;
    assert_int_equal(build(documents, &began, &snapshot), STATUS_STORE_UNAVAILABLE);
    strcpy(documents->folder, kept);
    documents_close(documents);
}

static void a_part_too_large_for_the_buffer_changes_nothing(void **state) {
    (void)state;
    struct documents *documents = documents_open();
    const struct principal user = {.identity = {.user_id = SLICE("u")}};
    documents_put_many(documents, 100);
    struct snapshot *snapshot = built(documents);
    struct buffer out;
    size_t count;
    buffer_init(&out, 500);
    assert_ok(buffer_append_byte(&out, '['));
    assert_int_equal(snapshot_part_read(snapshot, 0, VIEW_OF(&operator_all), &out, &count),
                     STATUS_PAYLOAD_TOO_LARGE);
    assert_int_equal(snapshot_part_read(snapshot, 0, VIEW_OF(&user), &out, &count),
                     STATUS_PAYLOAD_TOO_LARGE);
    assert_slice(buffer_slice(&out), "[");
    buffer_release(&out);
    snapshot_unref(snapshot);
    documents_close(documents);
}

static void an_owner_reads_back_and_a_truncated_row_is_noticed(void **state) {
    (void)state;
    struct buffer rows;
    const struct snapshot_owner wanted = {
        7, {.user_id = SLICE(""), .guest_scope = {NULL, 0}, .org_id = SLICE("organisation")}};
    buffer_init(&rows, 4096);
    assert_ok(snapshot_owner_write(&rows, &wanted));
    for (size_t size = 0; size <= rows.size; size++) {
        struct slice text = {rows.data, size};
        struct snapshot_owner row;
        assert_int_equal(snapshot_owner_read(&text, &row), size == rows.size);
        if (size < rows.size)
            continue;
        assert_int_equal(row.document_bytes, 7);
        assert_non_null(row.owner.user_id.data);
        assert_int_equal(row.owner.user_id.size, 0);
        assert_null(row.owner.guest_scope.data);
        assert_slice(row.owner.org_id, "organisation");
    }
    static char longer[70000];
    const struct snapshot_owner refused = {1, {.user_id = {longer, sizeof(longer)}}};
    size_t before = rows.size;
    assert_int_equal(snapshot_owner_write(&rows, &refused), STATUS_INTERNAL_ERROR);
    assert_int_equal(rows.size, before);
    buffer_release(&rows);
}

int main(void) {
    signal(SIGXFSZ, SIG_IGN);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_snapshot_holds_every_document_as_the_store_does),
        cmocka_unit_test(a_topic_without_documents_has_a_snapshot_without_parts),
        cmocka_unit_test(a_principal_gets_only_its_own_documents),
        cmocka_unit_test(parts_without_documents_of_a_principal_are_passed_over),
        cmocka_unit_test(parts_are_bounded_and_a_large_document_has_its_own_part),
        cmocka_unit_test(documents_committed_during_a_build_are_not_in_it),
        cmocka_unit_test(a_build_ends_when_it_may_not_grow),
        cmocka_unit_test(a_full_disk_fails_the_build_and_leaves_no_file),
        cmocka_unit_test(a_missing_folder_fails_the_build),
        cmocka_unit_test(a_part_too_large_for_the_buffer_changes_nothing),
        cmocka_unit_test(an_owner_reads_back_and_a_truncated_row_is_noticed),
    };
    return cmocka_run_group_tests_name("delivery/snapshot", tests, NULL, NULL);
}
