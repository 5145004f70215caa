#include "authority/chain_hash.h"
#include "vectors.h"
#include "wire/canonical.h"

static struct uuid uuid_of(const char *text) {
    struct uuid uuid;
    assert_ok(uuid7_parse(slice_of(text), &uuid));
    return uuid;
}

static struct store_event first_event(unsigned chain_version) {
    struct store_event event = {
        .entity_kind = ENTITY_RUN,
        .entity_id = SLICE("r1"),
        .seq = 1,
        .type = SLICE("run.started"),
        .payload = SLICE("{}"),
        .event_id = uuid_of("018f3b7e-1000-7000-8000-000000000001"),
        .cursor = uuid_of("018f3b7e-1000-7000-8000-000000000001"),
        .recorded_at_ms = 1714690068480,
        .chain_version = chain_version,
    };
    sha256("{}", 2, event.payload_hash);
    return event;
}

/* ---- vectors ---- */

static void read_hash(json_t *vector, const char *key, uint8_t digest[SHA256_BYTES]) {
    struct slice text = vector_text(vector, key);
    assert_int_equal(text.size, PAYLOAD_HASH_SIZE - 1);
    for (size_t i = 0; i < SHA256_BYTES; i++) {
        unsigned byte;
        assert_int_equal(sscanf(text.data + sizeof("sha256:") - 1 + 2 * i, "%2x", &byte), 1);
        digest[i] = (uint8_t)byte;
    }
}

static enum entity_kind kind_of(struct slice name) {
    for (unsigned kind = 0; kind < ENTITY_KIND_COUNT; kind++)
        if (slice_equal(name, slice_of(entity_kind_name((enum entity_kind)kind))))
            return (enum entity_kind)kind;
    fail();
    return ENTITY_RUN;
}

static struct store_event vector_event(json_t *vector) {
    json_t *owner = json_object_get(vector, "owner");
    struct event_cursor cursor;
    assert_ok(event_cursor_decode(vector_text(vector, "cursor"), &cursor, NULL));
    struct store_event event = {
        .entity_kind = kind_of(vector_text(vector, "entity")),
        .entity_id = vector_text(vector, "entity_id"),
        .seq = vector_number(vector, "seq"),
        .type = vector_text(vector, "event_type"),
        .cursor = cursor.uuid,
        .recorded_at_ms = vector_number(vector, "recorded_at"),
        .owner = {.user_id = vector_text_or_null(owner, "user_id"),
                  .guest_scope = vector_text_or_null(owner, "guest_scope"),
                  .org_id = vector_text_or_null(owner, "org_id")},
        .chain_version = (unsigned)vector_number(vector, "chain_version"),
    };
    assert_ok(uuid7_parse(vector_text(vector, "event_id"), &event.event_id));
    read_hash(vector, "payload_hash", event.payload_hash);
    read_hash(vector, "prev_chain_hash", event.prev_chain_hash);
    return event;
}

static void every_vector_has_its_text_and_its_hash(void **state) {
    (void)state;
    json_t *vectors = vectors_load("chain_hash");
    struct buffer scratch;
    buffer_init(&scratch, CHAIN_HASH_SCRATCH_BYTES);
    size_t index;
    json_t *vector;
    json_array_foreach(vectors_array(vectors, "vectors"), index, vector) {
        struct store_event event = vector_event(vector);
        uint8_t wanted[SHA256_BYTES], digest[SHA256_BYTES];
        read_hash(vector, "chain_hash", wanted);
        assert_ok(chain_hash(&event, &scratch, digest));
        struct slice text = slice_from(buffer_slice(&scratch), SHA256_BYTES);
        assert_true(slice_equal(text, vector_text(vector, "canonical_json")));
        assert_memory_equal(digest, wanted, SHA256_BYTES);
    }
    buffer_release(&scratch);
    json_decref(vectors);
}

/* ---- changes ---- */

#define CHANGES_V1 8
#define CHANGES    12

static void every_part_of_an_event_changes_its_hash(void **state) {
    (void)state;
    struct buffer scratch;
    buffer_init(&scratch, CHAIN_HASH_SCRATCH_BYTES);
    for (unsigned version = 1; version <= STORE_CHAIN_VERSION; version++) {
        const struct store_event event = first_event(version);
        uint8_t digest[SHA256_BYTES];
        assert_ok(chain_hash(&event, &scratch, digest));
        struct store_event changed[CHANGES];
        for (size_t i = 0; i < CHANGES; i++)
            changed[i] = event;
        changed[0].prev_chain_hash[31] ^= 1;
        changed[1].payload_hash[0] ^= 1;
        changed[2].seq = 2;
        changed[3].type = SLICE("run.startee");
        changed[4].entity_id = SLICE("r2");
        changed[5].entity_kind = ENTITY_WORKER;
        changed[6].cursor = uuid_of("018f3b7e-1000-7000-8000-000000000002");
        changed[7].event_id = uuid_of("018f3b7e-1000-7000-8000-000000000002");
        changed[8].recorded_at_ms--;
        changed[9].owner.user_id = SLICE("");
        changed[10].owner.guest_scope = SLICE("g");
        changed[11].owner.org_id = SLICE("o");
        for (size_t i = 0; i < (version == 1 ? CHANGES_V1 : CHANGES); i++) {
            uint8_t other[SHA256_BYTES];
            assert_ok(chain_hash(&changed[i], &scratch, other));
            assert_memory_not_equal(digest, other, SHA256_BYTES);
        }
    }
    buffer_release(&scratch);
}

static void the_longest_names_fit_and_longer_ones_are_refused(void **state) {
    (void)state;
    struct buffer scratch;
    buffer_init(&scratch, CHAIN_HASH_SCRATCH_BYTES);
    static char name[CHAIN_HASH_SCRATCH_BYTES];
    memset(name, 1, sizeof(name));
    struct store_event event = first_event(STORE_CHAIN_VERSION);
    uint8_t digest[SHA256_BYTES];
    event.entity_id = (struct slice){name, 512};
    event.type = (struct slice){name, 128};
    event.owner.user_id = event.owner.guest_scope = event.owner.org_id = (struct slice){name, 256};
    assert_ok(chain_hash(&event, &scratch, digest));
    event.type = (struct slice){name, sizeof(name)};
    assert_int_equal(chain_hash(&event, &scratch, digest), STATUS_PAYLOAD_TOO_LARGE);
    buffer_release(&scratch);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_vector_has_its_text_and_its_hash),
        cmocka_unit_test(every_part_of_an_event_changes_its_hash),
        cmocka_unit_test(the_longest_names_fit_and_longer_ones_are_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
