#include "authority/import/import_check.h"
#include "test.h"

#define EVENTS   60
#define ENTITIES 10
#define PARTS    3

struct lines {
    struct import_line all[EVENTS];
    char ids[ENTITIES][8];
};

static struct uuid cursor_of(uint64_t number) {
    struct uuid uuid = uuid7_first(1700000000000);
    uuid.bytes[14] = (uint8_t)(number >> 8);
    uuid.bytes[15] = (uint8_t)number;
    return uuid;
}

/* The events of ten runs in turn; a chain hash is the event's number. */
static void make_lines(struct lines *lines) {
    for (size_t i = 0; i < EVENTS; i++) {
        size_t entity = i % ENTITIES;
        struct store_event *event = &lines->all[i].event;
        snprintf(lines->ids[entity], sizeof(lines->ids[entity]), "r%zu", entity);
        lines->all[i] = (struct import_line){.event = {.entity_kind = ENTITY_RUN,
                                                       .entity_id = slice_of(lines->ids[entity]),
                                                       .seq = i / ENTITIES + 1,
                                                       .cursor = cursor_of(i + 1),
                                                       .chain_version = STORE_CHAIN_VERSION}};
        event->chain_hash[0] = (uint8_t)(i + 1);
        event->prev_chain_hash[0] = (uint8_t)(i < ENTITIES ? 0 : i + 1 - ENTITIES);
    }
}

/* The number of parts that refuse the lines. */
static size_t refusing_parts(const struct lines *lines, const char *wanted) {
    struct import_check check;
    size_t refused = 0;
    import_check_init(&check);
    check.part_count = PARTS;
    for (uint64_t part = 0; part < PARTS; part++) {
        enum status status = STATUS_OK;
        const char *reason = NULL;
        import_check_begin_part(&check, part);
        for (size_t i = 0; status == STATUS_OK && i < EVENTS; i++)
            status = import_check_link(&check, &lines->all[i].event, &reason);
        if (status == STATUS_OK)
            continue;
        assert_int_equal(status, STATUS_IMPORT_REFUSED);
        assert_string_equal(reason, wanted);
        refused++;
    }
    import_check_release(&check);
    return refused;
}

static void every_link_is_followed_in_one_of_the_parts(void **state) {
    (void)state;
    struct lines lines;
    make_lines(&lines);
    assert_int_equal(refusing_parts(&lines, ""), 0);
    for (size_t i = 0; i < EVENTS; i++) {
        make_lines(&lines);
        lines.all[i].event.prev_chain_hash[31] ^= 1;
        assert_int_equal(
            refusing_parts(&lines, "the link to the previous event of the entity is broken"), 1);
        make_lines(&lines);
        lines.all[i].event.seq++;
        assert_int_equal(refusing_parts(&lines, "earlier events of the entity are missing"), 1);
    }
}

static void a_parent_is_an_earlier_run_of_the_owner(void **state) {
    (void)state;
    const char *refusal = "parent_run_id names no earlier run of the owner";
    struct lines lines;
    for (size_t child = 0; child < ENTITIES; child++) {
        for (size_t parent = 0; parent < ENTITIES + 1; parent++) {
            char payload[64];
            make_lines(&lines);
            struct store_event *event = &lines.all[child].event;
            snprintf(payload, sizeof(payload), "{\"parent_run_id\":\"r%zu\"}", parent);
            event->payload = slice_of(payload);
            assert_int_equal(refusing_parts(&lines, refusal), parent >= child);
            /* The same owner in all events of the child, so that only the parent differs. */
            for (size_t i = child; i < EVENTS; i += ENTITIES)
                lines.all[i].event.owner.user_id = SLICE("u");
            assert_int_equal(refusing_parts(&lines, refusal), 1);
        }
    }
    make_lines(&lines);
    lines.all[5].event.payload = SLICE("{\"parent_run_id\":7}");
    assert_int_equal(refusing_parts(&lines, "parent_run_id is not the id of a run"), PARTS);
}

static const char *refusal_of(struct import_check *check, const struct import_line *line) {
    const char *reason = NULL;
    enum status status = import_check_line(check, line, SLICE("{}"), &reason);
    return status == STATUS_OK ? NULL : reason;
}

static void cursors_rise_and_versions_do_not_fall(void **state) {
    (void)state;
    struct lines lines;
    struct import_check check;
    make_lines(&lines);
    import_check_init(&check);
    lines.all[0].event.chain_version = 1;
    assert_null(refusal_of(&check, &lines.all[0]));
    assert_string_equal(refusal_of(&check, &lines.all[0]),
                        "the cursor is not above the cursor of the previous line");
    assert_null(refusal_of(&check, &lines.all[1]));
    lines.all[2].event.chain_version = 1;
    assert_string_equal(refusal_of(&check, &lines.all[2]),
                        "a link of version 1 follows a link of version 2");
    import_check_release(&check);
}

static void the_manifest_ends_the_file(void **state) {
    (void)state;
    struct lines lines;
    struct import_check check;
    const char *reason = NULL;
    struct import_line manifest = {.is_manifest = true, .count = 2};
    make_lines(&lines);
    sha256("{}\n{}\n", 6, manifest.sha256);
    import_check_init(&check);
    assert_int_equal(import_check_end(&check, &reason), STATUS_IMPORT_REFUSED);
    assert_null(refusal_of(&check, &lines.all[0]));
    assert_null(refusal_of(&check, &lines.all[1]));
    assert_null(refusal_of(&check, &manifest));
    assert_ok(import_check_end(&check, &reason));
    assert_int_equal(check.part_count, 1);
    assert_string_equal(refusal_of(&check, &lines.all[2]), "a line follows the manifest");
    import_check_release(&check);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_link_is_followed_in_one_of_the_parts),
        cmocka_unit_test(a_parent_is_an_earlier_run_of_the_owner),
        cmocka_unit_test(cursors_rise_and_versions_do_not_fall),
        cmocka_unit_test(the_manifest_ends_the_file),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
