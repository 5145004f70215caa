#include "authority/event_hash.h"
#include "test.h"

/* The expected hashes were computed by another program, in another language. */

static struct uuid uuid_of(const char *text) {
    struct uuid uuid;
    assert_ok(uuid7_parse(slice_of(text), &uuid));
    return uuid;
}

static void assert_hex(const uint8_t *digest, const char *hex) {
    char text[2 * SHA256_BYTES + 1];
    for (size_t i = 0; i < SHA256_BYTES; i++)
        (void)snprintf(text + 2 * i, 3, "%02x", digest[i]);
    assert_string_equal(text, hex);
}

static struct store_event first_event(void) {
    struct store_event event = {
        .entity_kind = ENTITY_RUN,
        .entity_id = SLICE("r1"),
        .seq = 1,
        .type = SLICE("run.started"),
        .payload = SLICE("{}"),
        .event_id = uuid_of("018f3b7e-1000-7000-8000-000000000001"),
        .cursor = uuid_of("018f3b7e-1000-7000-8000-000000000001"),
    };
    sha256("{}", 2, event.payload_hash);
    return event;
}

static void known_events_have_known_hashes(void **state) {
    (void)state;
    struct buffer scratch;
    buffer_init(&scratch, EVENT_HASH_SCRATCH_BYTES);
    struct store_event event = first_event();
    assert_ok(event_hash(&event, &scratch, event.event_hash));
    assert_hex(event.event_hash,
               "ae6799cde726c24f93ed3669327eca1399b1a61083981e794890dd17ad427c05");

    struct store_event second = event;
    second.seq = 2;
    second.type = SLICE("odd \"type\" \xc3\xa9");
    second.event_id = uuid_of("018f3b7e-0000-7000-8000-00000000000a");
    second.cursor = uuid_of("018f3b7e-1001-7abc-9def-000000000002");
    memcpy(second.prev_hash, event.event_hash, SHA256_BYTES);
    sha256("{\"n\":1}", 7, second.payload_hash);
    assert_ok(event_hash(&second, &scratch, second.event_hash));
    assert_hex(second.event_hash,
               "d65070ce6bca102f256448e13e84c8d31162448cfe78538bd61540446644b8ab");

    struct store_event topic = first_event();
    topic.entity_kind = ENTITY_TOPIC;
    topic.entity_id = SLICE("a\"b\\c");
    topic.seq = UINT64_MAX;
    topic.type = SLICE("x");
    assert_ok(event_hash(&topic, &scratch, topic.event_hash));
    assert_hex(topic.event_hash,
               "1611e8746e2a56fd9660522c0359ec2b4daddd019498b8de9ffe843a2ee3d0bd");
    buffer_release(&scratch);
}

static void every_part_of_an_event_changes_its_hash(void **state) {
    (void)state;
    struct buffer scratch;
    buffer_init(&scratch, EVENT_HASH_SCRATCH_BYTES);
    const struct store_event event = first_event();
    uint8_t digest[SHA256_BYTES];
    assert_ok(event_hash(&event, &scratch, digest));
    struct store_event changed[8];
    for (size_t i = 0; i < 8; i++)
        changed[i] = event;
    changed[0].prev_hash[31] ^= 1;
    changed[1].payload_hash[0] ^= 1;
    changed[2].seq = 2;
    changed[3].type = SLICE("run.startee");
    changed[4].entity_id = SLICE("r2");
    changed[5].entity_kind = ENTITY_WORKER;
    changed[6].cursor = uuid_of("018f3b7e-1000-7000-8000-000000000002");
    changed[7].event_id = uuid_of("018f3b7e-1000-7000-8000-000000000002");
    for (size_t i = 0; i < 8; i++) {
        uint8_t other[SHA256_BYTES];
        assert_ok(event_hash(&changed[i], &scratch, other));
        assert_memory_not_equal(digest, other, SHA256_BYTES);
    }
    buffer_release(&scratch);
}

static void the_longest_names_fit_and_longer_ones_are_refused(void **state) {
    (void)state;
    struct buffer scratch;
    buffer_init(&scratch, EVENT_HASH_SCRATCH_BYTES);
    static char name[EVENT_HASH_SCRATCH_BYTES];
    memset(name, 1, sizeof(name));
    struct store_event event = first_event();
    uint8_t digest[SHA256_BYTES];
    event.entity_id = (struct slice){name, 512};
    event.type = (struct slice){name, 128};
    assert_ok(event_hash(&event, &scratch, digest));
    event.type = (struct slice){name, sizeof(name)};
    assert_int_equal(event_hash(&event, &scratch, digest), STATUS_PAYLOAD_TOO_LARGE);
    buffer_release(&scratch);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(known_events_have_known_hashes),
        cmocka_unit_test(every_part_of_an_event_changes_its_hash),
        cmocka_unit_test(the_longest_names_fit_and_longer_ones_are_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
