#include "topic/topic_table.h"

#include "test.h"
#include "topic/policy.h"
#include "topic/stream_id.h"
#include "topic/topic_name.h"

static bool has_id(const struct topic_row *row) {
    return strchr(row->pattern, '*') != NULL;
}

static struct slice name_of(struct arena *arena, enum topic_kind kind) {
    struct slice name;
    assert_ok(topic_name_make(arena, kind, SLICE("a:b"), &name));
    return name;
}

static void a_name_made_from_a_row_leads_back_to_the_row(void **state) {
    (void)state;
    struct arena arena;
    arena_init(&arena, 65536);
    for (size_t i = 0; i < TOPIC_KIND_COUNT; i++) {
        enum topic_kind kind = (enum topic_kind)i;
        struct slice id;
        struct slice name = name_of(&arena, kind);
        assert_int_equal(topic_kind_of(name, &id), kind);
        assert_int_equal(topic_kind_of(name, NULL), kind);
        assert_slice(id, has_id(topic_row(kind)) ? "a:b" : "");
        assert_int_equal(topic_is_projection_owned(name), kind != TOPIC_APPLICATION);
        if (!has_id(topic_row(kind)))
            assert_true(slice_equal(name, topic_name(kind)));
    }
    arena_release(&arena);
}

static void the_stream_id_of_each_topic_that_exists_leads_back_to_it(void **state) {
    (void)state;
    struct arena arena;
    struct buffer back;
    arena_init(&arena, 65536);
    buffer_init(&back, STREAM_ID_BYTES_MAX);
    for (size_t i = 0; i < TOPIC_APPLICATION; i++) {
        enum topic_kind kind = (enum topic_kind)i;
        struct slice name = name_of(&arena, kind);
        struct slice stream_id;
        if (topic_row(kind)->ownership == TOPIC_RESERVED)
            continue;
        buffer_clear(&back);
        assert_ok(topic_stream(&arena, name, &stream_id));
        assert_ok(stream_to_topic(stream_id, &back));
        assert_true(slice_equal(buffer_slice(&back), name));
    }
    buffer_release(&back);
    arena_release(&arena);
}

static void the_columns_of_a_topic_agree(void **state) {
    (void)state;
    for (size_t i = 0; i < TOPIC_KIND_COUNT; i++) {
        const struct topic_row *row = topic_row((enum topic_kind)i);
        bool is_entity = row->ownership == TOPIC_OWNED_BY_ENTITY;
        bool is_shared = row->ownership == TOPIC_SHARED;
        bool is_free = row->ownership == TOPIC_GRANTED || row->ownership == TOPIC_RESERVED;
        assert_true(row->policy < POLICY_ROW_COUNT);
        assert_int_equal(is_entity, row->entity != ENTITY_NONE);
        assert_int_equal(has_id(row), !is_shared);
        assert_int_equal(row->scopes_any == 0, is_free);
        if (is_entity)
            assert_int_equal(entity_row(row->entity)->topic, i);
        if (row->stream)
            assert_int_equal(strchr(row->stream, '*') != NULL, has_id(row));
    }
}

static void the_columns_of_an_entity_agree(void **state) {
    (void)state;
    struct arena arena;
    arena_init(&arena, 65536);
    for (size_t i = 0; i < ENTITY_KIND_COUNT; i++) {
        enum entity_kind kind = (enum entity_kind)i;
        const struct entity_row *row = entity_row(kind);
        struct slice name;
        assert_string_equal(entity_kind_name(kind), row->name);
        assert_ok(topic_name_of_entity(&arena, kind, SLICE("a"), &name));
        assert_int_equal(topic_kind_of(name, NULL), row->topic);
        assert_true(row->not_found != STATUS_OK);
        if (row->shared_topic != TOPIC_NONE)
            assert_int_equal(topic_row(row->shared_topic)->ownership, TOPIC_SHARED);
        if (row->summary != DOCUMENT_NONE) {
            assert_int_equal(document_row(row->summary)->entity, kind);
            assert_non_null(row->event_key_prefix);
        }
        for (size_t other = 0; other < i; other++)
            assert_string_not_equal(row->name, entity_kind_name((enum entity_kind)other));
    }
    arena_release(&arena);
}

static void the_columns_of_a_document_agree(void **state) {
    (void)state;
    for (size_t i = 0; i < DOCUMENT_KIND_COUNT; i++) {
        enum document_kind kind = (enum document_kind)i;
        const struct document_row *row = document_row(kind);
        const struct policy *policy = policy_default(topic_row(row->topic)->policy);
        char prefix[64];
        assert_int_equal(document_kind_of(slice_of(document_kind_name(kind))), kind);
        snprintf(prefix, sizeof(prefix), "runtime/%s:", row->name);
        assert_string_equal(row->key_prefix, prefix);
        assert_true(strncmp(row->source_table, "runtime.sync_", 13) == 0);
        assert_int_equal(entity_row(row->entity)->summary, kind);
        assert_int_equal(topic_row(row->topic)->ownership, TOPIC_SHARED);
        assert_int_equal(policy->snapshot_document, kind);
        assert_true(slice_equal(policy_snapshot_topic(policy), topic_name(row->topic)));
        if (row->user_topic != TOPIC_NONE)
            assert_int_equal(topic_row(row->user_topic)->ownership, TOPIC_OWNED_BY_NAMED_USER);
        if (row->guest_topic != TOPIC_NONE)
            assert_int_equal(topic_row(row->guest_topic)->ownership, TOPIC_OWNED_BY_NAMED_GUEST);
    }
    assert_int_equal(document_kind_of(SLICE("run_summar")), DOCUMENT_NONE);
    assert_int_equal(document_kind_of(SLICE("")), DOCUMENT_NONE);
}

static void every_policy_has_a_topic_and_every_snapshot_a_document(void **state) {
    (void)state;
    for (size_t row = 0; row < POLICY_ROW_COUNT; row++) {
        const struct policy *policy = policy_default((enum policy_row)row);
        size_t topic_count = 0;
        for (size_t i = 0; i < TOPIC_KIND_COUNT; i++)
            topic_count += topic_row((enum topic_kind)i)->policy == row;
        assert_true(topic_count > 0);
        assert_int_equal(policy_has_snapshot(policy), policy->snapshot_cadence_seconds > 0);
        if (policy_has_snapshot(policy))
            assert_int_equal(policy_row_of(policy_snapshot_topic(policy)), row);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_name_made_from_a_row_leads_back_to_the_row),
        cmocka_unit_test(the_stream_id_of_each_topic_that_exists_leads_back_to_it),
        cmocka_unit_test(the_columns_of_a_topic_agree),
        cmocka_unit_test(the_columns_of_an_entity_agree),
        cmocka_unit_test(the_columns_of_a_document_agree),
        cmocka_unit_test(every_policy_has_a_topic_and_every_snapshot_a_document),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
