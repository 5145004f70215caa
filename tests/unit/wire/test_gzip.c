#include "wire/gzip.h"

#include "test.h"

#define BYTES_MAX (8u << 20)

static void unpack(struct slice packed, struct buffer *out) {
    z_stream stream = {0};
    assert_int_equal(inflateInit2(&stream, MAX_WBITS + 16), Z_OK);
    assert_ok(buffer_reserve(out, BYTES_MAX - 1));
    stream.next_in = (z_const Bytef *)packed.data;
    stream.avail_in = (uInt)packed.size;
    stream.next_out = (Bytef *)out->data;
    stream.avail_out = (uInt)out->capacity;
    assert_int_equal(inflate(&stream, Z_FINISH), Z_STREAM_END);
    assert_int_equal(stream.avail_in, 0);
    out->size = stream.total_out;
    inflateEnd(&stream);
}

static void pieces_unpack_to_the_written_bytes(void **state) {
    (void)state;
    static char text[1u << 20];
    uint64_t seed = 7;
    for (size_t i = 0; i < sizeof(text); i++)
        text[i] = i % 5000 < 2500 ? (char)test_random(&seed) : 'x';
    for (size_t most = 1; most <= sizeof(text); most *= 37) {
        struct gzip gzip;
        struct buffer packed, plain;
        struct slice rest = {text, most < 100 ? 20000 : sizeof(text)};
        struct slice whole = rest;
        buffer_init(&packed, BYTES_MAX);
        buffer_init(&plain, BYTES_MAX);
        assert_ok(gzip_init(&gzip, 1));
        while (rest.size > 0) {
            size_t size = 1 + test_random(&seed) % most;
            if (size > rest.size)
                size = rest.size;
            assert_ok(gzip_write(&gzip, &packed, (struct slice){rest.data, size}, false));
            rest = slice_from(rest, size);
        }
        assert_ok(gzip_write(&gzip, &packed, (struct slice){NULL, 0}, true));
        unpack(buffer_slice(&packed), &plain);
        assert_true(slice_equal(buffer_slice(&plain), whole));
        gzip_release(&gzip);
        buffer_release(&packed);
        buffer_release(&plain);
    }
}

static void a_file_may_be_empty_or_one_piece(void **state) {
    (void)state;
    static const char *const texts[] = {"", "[]", "hello, hello, hello"};
    for (size_t i = 0; i < 3; i++) {
        struct gzip gzip;
        struct buffer packed, plain;
        buffer_init(&packed, 65536);
        buffer_init(&plain, BYTES_MAX);
        assert_ok(gzip_init(&gzip, 6));
        assert_ok(gzip_write(&gzip, &packed, slice_of(texts[i]), true));
        unpack(buffer_slice(&packed), &plain);
        assert_slice(buffer_slice(&plain), texts[i]);
        gzip_release(&gzip);
        buffer_release(&packed);
        buffer_release(&plain);
    }
}

static void a_full_buffer_is_reported(void **state) {
    (void)state;
    struct gzip gzip;
    struct buffer packed;
    buffer_init(&packed, 100);
    assert_ok(gzip_init(&gzip, 1));
    assert_int_equal(gzip_write(&gzip, &packed, SLICE("x"), true), STATUS_PAYLOAD_TOO_LARGE);
    gzip_release(&gzip);
    buffer_release(&packed);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(pieces_unpack_to_the_written_bytes),
        cmocka_unit_test(a_file_may_be_empty_or_one_piece),
        cmocka_unit_test(a_full_buffer_is_reported),
    };
    return cmocka_run_group_tests_name("wire/gzip", tests, NULL, NULL);
}
