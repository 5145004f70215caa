#include <jansson.h>

#include "authority/metadata.h"
#include "test.h"
#include "wire/canonical.h"

typedef enum status change_fn(struct slice base, struct slice patch, struct buffer *out);

static void assert_changes(change_fn *change, const char *base, const char *patch,
                           const char *wanted) {
    struct buffer out;
    buffer_init(&out, 4096);
    struct slice text = base ? slice_of(base) : (struct slice){NULL, 0};
    assert_ok(change(text, slice_of(patch), &out));
    assert_slice(buffer_slice(&out), wanted);
    buffer_release(&out);
}

static void assert_merges(const char *base, const char *patch, const char *wanted) {
    assert_changes(metadata_merge, base, patch, wanted);
}

static void metadata_is_merged_member_by_member(void **state) {
    (void)state;
    assert_merges(NULL, "{}", "{}");
    assert_merges("{}", "{\"a\":1}", "{\"a\":1}");
    assert_merges("{\"a\":1}", "{}", "{\"a\":1}");
    assert_merges("{\"a\":1,\"c\":3}", "{\"b\":2}", "{\"a\":1,\"b\":2,\"c\":3}");
    assert_merges("{\"a\":1,\"b\":2}", "{\"a\":null}", "{\"b\":2}");
    assert_merges("{\"a\":1}", "{\"b\":null}", "{\"a\":1}");
    assert_merges("{\"a\":{\"x\":1}}", "{\"a\":{\"y\":null}}", "{\"a\":{\"y\":null}}");
    assert_merges("{\"a\":null}", "{\"b\":1}", "{\"a\":null,\"b\":1}");
    assert_merges("{\"a\":1,\"ab\":2}", "{\"a\":3,\"aa\":4}", "{\"a\":3,\"aa\":4,\"ab\":2}");
    assert_merges("{\"\":1}", "{\"\":2}", "{\"\":2}");
}

static void assert_patches(const char *base, const char *patch, const char *wanted) {
    assert_changes(metadata_patch, base, patch, wanted);
}

/* The examples of RFC 7386, appendix A, whose target and patch are objects; and absent metadata. */
static void a_patch_merges_objects_inside_members(void **state) {
    (void)state;
    assert_patches("{\"a\":\"b\"}", "{\"a\":\"c\"}", "{\"a\":\"c\"}");
    assert_patches("{\"a\":\"b\"}", "{\"b\":\"c\"}", "{\"a\":\"b\",\"b\":\"c\"}");
    assert_patches("{\"a\":\"b\"}", "{\"a\":null}", "{}");
    assert_patches("{\"a\":\"b\",\"b\":\"c\"}", "{\"a\":null}", "{\"b\":\"c\"}");
    assert_patches("{\"a\":[\"b\"]}", "{\"a\":\"c\"}", "{\"a\":\"c\"}");
    assert_patches("{\"a\":\"c\"}", "{\"a\":[\"b\"]}", "{\"a\":[\"b\"]}");
    assert_patches("{\"a\":{\"b\":\"c\"}}", "{\"a\":{\"b\":\"d\",\"c\":null}}",
                   "{\"a\":{\"b\":\"d\"}}");
    assert_patches("{\"a\":[{\"b\":\"c\"}]}", "{\"a\":[1]}", "{\"a\":[1]}");
    assert_patches("{\"e\":null}", "{\"a\":1}", "{\"a\":1,\"e\":null}");
    assert_patches("{}", "{\"a\":{\"bb\":{\"ccc\":null}}}", "{\"a\":{\"bb\":{}}}");
    assert_patches("{\"a\":5}", "{\"a\":{\"b\":null,\"c\":[null]}}", "{\"a\":{\"c\":[null]}}");
    assert_patches(NULL, "{\"a\":{\"b\":null,\"c\":1},\"d\":null}", "{\"a\":{\"c\":1}}");
}

static void escaped_names_are_compared_by_their_decoded_text(void **state) {
    (void)state;
    /* A newline sorts before the letters though its escape would not. */
    assert_merges("{\"\\n\":1,\"a\":2}", "{\"\\n\":3}", "{\"\\n\":3,\"a\":2}");
    assert_merges("{\"a\":2}", "{\"\\n\":3,\"\\\"\":4}", "{\"\\n\":3,\"\\\"\":4,\"a\":2}");
    assert_merges("{\"[\":1,\"a\":2}", "{\"\\\\\":3}", "{\"[\":1,\"\\\\\":3,\"a\":2}");
}

static void metadata_that_is_not_an_object_is_an_internal_error(void **state) {
    (void)state;
    struct buffer out;
    buffer_init(&out, 64);
    assert_ok(buffer_append(&out, "kept", 4));
    assert_int_equal(metadata_merge(SLICE("[]"), SLICE("{}"), &out), STATUS_INTERNAL_ERROR);
    assert_int_equal(metadata_merge(SLICE("{"), SLICE("{}"), &out), STATUS_INTERNAL_ERROR);
    assert_int_equal(metadata_merge(SLICE("{}"), SLICE("1"), &out), STATUS_INTERNAL_ERROR);
    char large[200];
    (void)snprintf(large, sizeof(large), "{\"a\":\"%0100d\"}", 0);
    assert_int_equal(metadata_merge(SLICE("{}"), slice_of(large), &out), STATUS_PAYLOAD_TOO_LARGE);
    assert_slice(buffer_slice(&out), "kept");
    buffer_release(&out);
}

static json_t *random_object(uint64_t *seed, bool has_nulls, unsigned depth) {
    static const char *const names[] = {"a", "b", "ab", "\n", "\"", "\\", "\xc3\xa9", "z", "", "["};
    json_t *object = json_object();
    for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++) {
        uint64_t pick = test_random(seed) % 5;
        if (pick == 0)
            json_object_set_new(object, names[i], has_nulls ? json_null() : json_true());
        else if (pick == 1)
            json_object_set_new(object, names[i], json_integer((json_int_t)(*seed % 100)));
        else if (pick == 2 && depth > 0)
            json_object_set_new(object, names[i], random_object(seed, has_nulls, depth - 1));
    }
    return object;
}

static struct slice canonical(json_t *object, struct canonical_scratch *scratch,
                              struct buffer *out) {
    char *text = json_dumps(object, 0);
    struct json_limits limits = {4096, 8};
    struct json_value value;
    assert_ok(json_parse(slice_of(text), &limits, &value));
    assert_ok(canonical_write(value, scratch, out));
    free(text);
    return buffer_slice(out);
}

/* MergePatch of RFC 7386, section 2, for two objects. */
static void merge_trees(json_t *target, json_t *patch, bool is_deep) {
    const char *name;
    json_t *value;
    json_object_foreach(patch, name, value) {
        json_t *old = json_object_get(target, name);
        if (json_is_null(value)) {
            json_object_del(target, name);
        } else if (is_deep && json_is_object(value)) {
            json_t *merged = json_is_object(old) ? json_incref(old) : json_object();
            merge_trees(merged, value, true);
            json_object_set_new(target, name, merged);
        } else {
            json_object_set(target, name, value);
        }
    }
}

static void assert_agrees_with_trees(uint64_t *seed, bool is_deep) {
    struct canonical_scratch scratch;
    struct buffer texts[3];
    struct buffer merged;
    canonical_scratch_init(&scratch, 4096);
    buffer_init(&merged, 4096);
    for (size_t i = 0; i < 3; i++)
        buffer_init(&texts[i], 4096);
    json_t *base = random_object(seed, false, 2);
    json_t *patch = random_object(seed, true, 2);
    struct slice base_text = canonical(base, &scratch, &texts[0]);
    struct slice patch_text = canonical(patch, &scratch, &texts[1]);
    assert_ok(is_deep ? metadata_patch(base_text, patch_text, &merged)
                      : metadata_merge(base_text, patch_text, &merged));
    merge_trees(base, patch, is_deep);
    struct slice wanted = canonical(base, &scratch, &texts[2]);
    assert_int_equal(merged.size, wanted.size);
    assert_memory_equal(merged.data, wanted.data, wanted.size);
    json_decref(base);
    json_decref(patch);
    for (size_t i = 0; i < 3; i++)
        buffer_release(&texts[i]);
    buffer_release(&merged);
    canonical_scratch_release(&scratch);
}

static void a_merge_agrees_with_a_merge_of_trees(void **state) {
    (void)state;
    uint64_t seed = 5;
    for (int round = 0; round < 2000; round++)
        assert_agrees_with_trees(&seed, round % 2 == 0);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(metadata_is_merged_member_by_member),
        cmocka_unit_test(a_patch_merges_objects_inside_members),
        cmocka_unit_test(escaped_names_are_compared_by_their_decoded_text),
        cmocka_unit_test(metadata_that_is_not_an_object_is_an_internal_error),
        cmocka_unit_test(a_merge_agrees_with_a_merge_of_trees),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
