/* Every document kind of the table works from the fold to the stored document and its frames. */
#include "stored_log.h"

#include "projector/fold.h"
#include "topic/topic_name.h"
#include "wire/canonical.h"

static uint64_t frame_count(struct stored_log *log, struct slice name) {
    struct store_topic topic;
    assert_ok(store_load_topic(log->session, name, &log->arena, &topic));
    return topic.head_seq;
}

static enum status count_document(void *user, const struct store_document *document) {
    assert_slice(document->owner.user_id, "u");
    ++*(uint64_t *)user;
    return STATUS_OK;
}

static void expect_canonical(struct slice document) {
    const struct json_limits limits = {document.size, JSON_DEPTH_MAX};
    struct canonical_scratch scratch;
    struct buffer canonical;
    struct json_value value;
    canonical_scratch_init(&scratch, document.size);
    buffer_init(&canonical, document.size);
    assert_ok(json_parse(document, &limits, &value));
    assert_ok(canonical_write(value, &scratch, &canonical));
    assert_true(slice_equal(buffer_slice(&canonical), document));
    buffer_release(&canonical);
    canonical_scratch_release(&scratch);
}

/* The document names its entity with the names of the table. */
static void expect_names(enum document_kind kind, struct slice document) {
    const struct document_row *row = document_row(kind);
    const struct json_limits limits = {document.size, JSON_DEPTH_MAX};
    struct json_field fields[] = {{.name = SLICE("kind")},
                                  {.name = slice_of(entity_row(row->entity)->id_member)},
                                  {.name = SLICE("runtime_source")}};
    struct json_field source[] = {{.name = SLICE("entity")},
                                  {.name = slice_of(entity_row(row->entity)->id_member)}};
    assert_ok(json_read_object(document, &limits, fields, 3));
    assert_true(json_string_is(fields[0].value, slice_of(row->name)));
    assert_true(json_string_is(fields[1].value, SLICE("one")));
    assert_ok(json_read_members(fields[2].value, source, 2));
    assert_true(json_string_is(source[0].value, slice_of(entity_kind_name(row->entity))));
    assert_true(json_string_is(source[1].value, SLICE("one")));
}

static void expect_frames(struct stored_log *log, enum document_kind kind) {
    const struct document_row *row = document_row(kind);
    const struct entity_row *entity = entity_row(row->entity);
    struct slice name;
    assert_int_equal(frame_count(log, topic_name(row->topic)), 1);
    if (entity->shared_topic != TOPIC_NONE)
        assert_int_equal(frame_count(log, topic_name(entity->shared_topic)), 2);
    if (row->user_topic == TOPIC_NONE)
        return;
    assert_ok(topic_name_make(&log->arena, row->user_topic, SLICE("u"), &name));
    assert_int_equal(frame_count(log, name), 1);
}

static void every_kind_goes_the_whole_way(void **state) {
    (void)state;
    for (size_t i = 0; i < DOCUMENT_KIND_COUNT; i++) {
        enum document_kind kind = (enum document_kind)i;
        enum entity_kind entity = document_row(kind)->entity;
        struct stored_log *log = log_open(NULL);
        uint64_t count = 0;
        log_entity(log, entity, "one")->owner.user_id = SLICE("u");
        log_append(log, entity, "one", "made", "{\"owner_user_id\":\"u\"}");
        log_append(log, entity, "one", "used", "{}");
        log_commit(log);
        struct store_document document = log_document(log, entity, "one");
        assert_int_equal(document.kind, kind);
        assert_true(slice_starts(document.key, slice_of(document_row(kind)->key_prefix)));
        expect_canonical(document.payload);
        expect_names(kind, document.payload);
        expect_frames(log, kind);
        assert_ok(store_walk_documents(log->session, kind, 0, 10, &count, count_document));
        assert_int_equal(count, 1);
        assert_int_equal(log_reproject(log, true).entities, 1);
        assert_int_equal(log_reproject(log, true).drifted, 0);
        log_close(log);
    }
}

static void every_kind_has_a_layout_of_its_own(void **state) {
    (void)state;
    for (size_t i = 0; i < DOCUMENT_KIND_COUNT; i++) {
        const struct summary_layout *layout = fold_layout((enum document_kind)i);
        assert_int_equal(layout->document, i);
        assert_non_null(layout->fold);
        assert_true(layout->summary_size <= sizeof(union any_summary));
        assert_true(layout->field_count <= SUMMARY_FIELDS_MAX);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_kind_has_a_layout_of_its_own),
        cmocka_unit_test(every_kind_goes_the_whole_way),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
