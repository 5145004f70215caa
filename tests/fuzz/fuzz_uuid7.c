/* Any bytes as text: what parses formats to the same text. The same bytes as a clock: the ids
 * of a generator that starts from them rise through every reading. */
#include "base/uuid7.h"
#include "fuzz.h"

static void check_text(struct slice text) {
    struct uuid uuid;
    char again[UUID_TEXT_SIZE];
    if (uuid7_parse(text, &uuid) != STATUS_OK)
        return;
    require(uuid7_valid(&uuid) && text.size == UUID_TEXT_SIZE);
    uuid_format(&uuid, again);
    require(memcmp(again, text.data, sizeof(again)) == 0);
    require(uuid7_timestamp_ms(&uuid) <= UUID7_TIMESTAMP_MS_MAX);
}

static void check_value(const struct uuid *uuid) {
    char text[UUID_TEXT_SIZE];
    struct uuid back;
    uuid_format(uuid, text);
    bool parsed = uuid7_parse((struct slice){text, sizeof(text)}, &back) == STATUS_OK;
    require(parsed == uuid7_valid(uuid));
    require(!parsed || uuid_compare(&back, uuid) == 0);
}

static void check_generator(struct uuid last, const uint8_t *clock, size_t size) {
    static struct uuid7_generator generator;
    if (uuid7_generator_init(&generator, &last) != STATUS_OK)
        return;
    for (; size >= 6; clock += 6, size -= 6) {
        uint64_t now_ms = 0;
        for (size_t i = 0; i < 6; i++)
            now_ms = now_ms << 8 | clock[i];
        struct uuid next = uuid7_next(&generator, now_ms);
        require(uuid7_valid(&next) && uuid_compare(&next, &last) > 0);
        require(uuid7_timestamp_ms(&next) >= now_ms);
        last = next;
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    struct uuid uuid;
    check_text((struct slice){(const char *)data, size});
    if (size >= sizeof(uuid.bytes)) {
        memcpy(uuid.bytes, data, sizeof(uuid.bytes));
        check_value(&uuid);
        uuid.bytes[6] = (uint8_t)(0x70 | (uuid.bytes[6] & 15));
        uuid.bytes[8] = (uint8_t)(0x80 | (uuid.bytes[8] & 63));
        check_value(&uuid);
        check_generator(uuid, data + sizeof(uuid.bytes), size - sizeof(uuid.bytes));
    }
    return 0;
}
