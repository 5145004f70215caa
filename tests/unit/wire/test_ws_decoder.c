#include "wire/websocket/ws_decoder.h"

#include "../../support/ws_peer.h"
#include "vectors.h"

#define MESSAGE_BYTES_MAX 1000
/* A mask of zeros leaves the payload readable in the tests below. */
#define MASK              "\0\0\0\0"
#define CASE_COUNT(cases) (sizeof(cases) / sizeof((cases)[0]))

struct fixture {
    struct ws_shared shared;
    struct ws_decoder decoder;
    struct buffer transcript;
};

static void fixture_open(struct fixture *fixture, size_t message_bytes_max, bool deflate) {
    ws_shared_init(&fixture->shared);
    buffer_init(&fixture->transcript, 1 << 22);
    ws_decoder_init(&fixture->decoder, &fixture->shared, &recording, &fixture->transcript,
                    message_bytes_max, deflate);
}

static void fixture_close(struct fixture *fixture) {
    ws_decoder_release(&fixture->decoder);
    ws_shared_release(&fixture->shared);
    buffer_release(&fixture->transcript);
}

static enum status feed_pieces(struct ws_decoder *decoder, struct slice data, size_t piece_max) {
    enum status status = STATUS_OK;
    while (data.size > 0) {
        size_t size = data.size < piece_max ? data.size : piece_max;
        status = ws_feed(decoder, (struct slice){data.data, size});
        data = slice_from(data, size);
    }
    return status;
}

/* What the bytes give in one piece, after checking that single bytes, and pieces of three, give
 * the same. */
static enum status decode(struct slice bytes, bool deflate, struct buffer *transcript) {
    static const size_t pieces[] = {1, 3};
    struct fixture whole;
    fixture_open(&whole, MESSAGE_BYTES_MAX, deflate);
    enum status status = ws_feed(&whole.decoder, bytes);
    for (size_t i = 0; i < CASE_COUNT(pieces); i++) {
        struct fixture cut;
        fixture_open(&cut, MESSAGE_BYTES_MAX, deflate);
        assert_int_equal(feed_pieces(&cut.decoder, bytes, pieces[i]), status);
        assert_true(slice_equal(buffer_slice(&cut.transcript), buffer_slice(&whole.transcript)));
        assert_int_equal(holds_no_memory(&cut.decoder), holds_no_memory(&whole.decoder));
        fixture_close(&cut);
    }
    buffer_init(transcript, 1 << 22);
    assert_ok(buffer_append_slice(transcript, buffer_slice(&whole.transcript)));
    fixture_close(&whole);
    return status;
}

/* The events of a row as the recording handlers write them down. */
static struct buffer transcript_of(json_t *row) {
    struct buffer transcript;
    size_t index;
    json_t *event;
    buffer_init(&transcript, VECTOR_BYTES_MAX);
    json_array_foreach(json_object_get(row, "events"), index, event) {
        const char *kind = vector_text(event, "kind").data;
        const char *code = strcmp(kind, "message") == 0 ? "opcode" : "code";
        struct buffer payload = vector_text_or_hex(event, "text", "hex");
        record(&transcript, kind,
               json_object_get(event, code) ? (unsigned)vector_number(event, code) : 0,
               buffer_slice(&payload));
        buffer_release(&payload);
    }
    return transcript;
}

static void check_row(json_t *row, enum status expected) {
    struct buffer transcript;
    struct buffer bytes = vector_hex(row, "hex");
    struct buffer events = transcript_of(row);
    const char *why = vector_text(row, "why").data;
    enum status status = decode(buffer_slice(&bytes), vector_flag(row, "deflate"), &transcript);
    if (status != expected)
        fail_msg("%s: %s", why, status_code(status));
    if (!slice_equal(buffer_slice(&transcript), buffer_slice(&events)))
        fail_msg("%s: other events", why);
    buffer_release(&transcript);
    buffer_release(&events);
    buffer_release(&bytes);
}

static void valid_frames_are_accepted(void **state) {
    (void)state;
    json_t *vectors = vectors_load("ws_frames");
    size_t index;
    json_t *row;
    json_array_foreach(vectors_array(vectors, "client"), index, row) {
        assert_true(json_is_array(json_object_get(row, "events")));
        check_row(row, STATUS_OK);
    }
    json_decref(vectors);
}

static void invalid_frames_are_refused(void **state) {
    (void)state;
    json_t *vectors = vectors_load("ws_frames");
    size_t index;
    json_t *row;
    json_array_foreach(vectors_array(vectors, "refused"), index, row) {
        enum status status = vector_status(row);
        assert_int_not_equal(status, STATUS_OK);
        assert_int_equal(ws_close_code(status), vector_number(row, "close_code"));
        check_row(row, status);
    }
    json_decref(vectors);
}

static void every_close_code_is_judged(void **state) {
    (void)state;
    for (unsigned code = 0; code <= UINT16_MAX; code++) {
        char bytes[] = "\x88\x82" MASK "??";
        struct fixture fixture;
        bytes[6] = (char)(code >> 8);
        bytes[7] = (char)(code & 0xff);
        fixture_open(&fixture, MESSAGE_BYTES_MAX, false);
        assert_int_equal(ws_feed(&fixture.decoder, (struct slice){bytes, 8}),
                         ws_close_code_valid(code) ? STATUS_OK : STATUS_WS_PROTOCOL_ERROR);
        assert_true(fixture.decoder.closed);
        fixture_close(&fixture);
    }
}

static void a_failed_decoder_stays_failed(void **state) {
    (void)state;
    struct fixture fixture;
    fixture_open(&fixture, MESSAGE_BYTES_MAX, false);
    assert_ok(ws_feed(&fixture.decoder, SLICE("\x01\x81" MASK "a\x81")));
    assert_false(holds_no_memory(&fixture.decoder));
    assert_int_equal(ws_feed(&fixture.decoder, SLICE("\x81" MASK "b")), STATUS_WS_PROTOCOL_ERROR);
    assert_true(holds_no_memory(&fixture.decoder));
    assert_int_equal(ws_feed(&fixture.decoder, SLICE("\x81\x81" MASK "a")),
                     STATUS_WS_PROTOCOL_ERROR);
    assert_int_equal(ws_feed(&fixture.decoder, SLICE("")), STATUS_WS_PROTOCOL_ERROR);
    assert_int_equal(fixture.transcript.size, 0);
    fixture_close(&fixture);
}

static enum status refuse_message(void *user, enum ws_opcode opcode, struct slice message) {
    (void)opcode;
    (void)message;
    ++*(int *)user;
    return STATUS_INVALID_MESSAGE;
}

static void a_handler_can_end_it(void **state) {
    (void)state;
    const struct ws_handlers refusing = {.on_message = refuse_message};
    static const struct slice twice[] = {
        {"\x81\x81" MASK "a\x81\x81" MASK "b", 14},
        {"\xc1\x81" MASK "\x00\xc1\x81" MASK "\x00", 14},
        {"\x01\x81" MASK "a\x80\x81" MASK "b\x81\x81" MASK "c", 21},
    };
    for (size_t i = 0; i < CASE_COUNT(twice); i++) {
        int count = 0;
        struct ws_shared shared;
        struct ws_decoder decoder;
        ws_shared_init(&shared);
        ws_decoder_init(&decoder, &shared, &refusing, &count, MESSAGE_BYTES_MAX, true);
        assert_int_equal(ws_feed(&decoder, twice[i]), STATUS_INVALID_MESSAGE);
        assert_int_equal(ws_feed(&decoder, twice[i]), STATUS_INVALID_MESSAGE);
        assert_int_equal(count, 1);
        assert_true(holds_no_memory(&decoder));
        ws_decoder_release(&decoder);
        ws_shared_release(&shared);
    }
}

/* ---- limits ---- */

static void frame_of(struct buffer *out, struct client_frame frame, size_t size) {
    static const char zeros[70000];
    assert_true(size <= sizeof(zeros));
    frame.payload = (struct slice){zeros, size};
    client_frame_write(out, frame);
}

static void a_message_may_have_the_maximum_and_no_more(void **state) {
    (void)state;
    static const size_t limits[] = {1, 125, 126, 4090, 4096, 65535, 65536};
    for (size_t i = 0; i < CASE_COUNT(limits); i++) {
        for (size_t over = 0; over <= 1; over++) {
            struct fixture fixture;
            struct buffer bytes;
            fixture_open(&fixture, limits[i], false);
            buffer_init(&bytes, 1 << 20);
            frame_of(&bytes, (struct client_frame){.final = true, .opcode = WS_BINARY},
                     limits[i] + over);
            assert_int_equal(ws_feed(&fixture.decoder, buffer_slice(&bytes)),
                             over ? STATUS_WS_MESSAGE_TOO_BIG : STATUS_OK);
            assert_true((fixture.transcript.size > limits[i]) == (over == 0));
            assert_true(holds_no_memory(&fixture.decoder));
            buffer_release(&bytes);
            fixture_close(&fixture);
        }
    }
}

static void a_declared_size_takes_no_memory_before_it_arrives(void **state) {
    (void)state;
    struct fixture fixture;
    fixture_open(&fixture, 1 << 30, false);
    assert_ok(
        ws_feed(&fixture.decoder, SLICE("\x82\xff\x00\x00\x00\x00\x3f\xff\xff\xff" MASK "a")));
    assert_true(fixture.decoder.partial->message.capacity <= 4096);
    fixture_close(&fixture);
}

static void a_header_is_judged_before_any_payload_comes(void **state) {
    (void)state;
    static const struct {
        struct slice bytes;
        enum status status;
    } cases[] = {
        {SLICE("\x81\xfe\x03\xe8" MASK), STATUS_OK}, /* the maximum */
        {SLICE("\x81\xfe\x03\xe9"), STATUS_WS_MESSAGE_TOO_BIG},
        {SLICE("\x81\xff\x00\x00\x00\x00\x00\x01\x00\x00"), STATUS_WS_MESSAGE_TOO_BIG},
        {SLICE("\x81\xff\x7f\xff\xff\xff\xff\xff\xff\xff"), STATUS_WS_MESSAGE_TOO_BIG},
        {SLICE("\x81\xff\x80\x00\x00\x00\x00\x00\x00\x00"), STATUS_WS_PROTOCOL_ERROR},
        {SLICE("\x81\xff\xff\xff\xff\xff\xff\xff\xff\xff"), STATUS_WS_PROTOCOL_ERROR},
        {SLICE("\x01\x81" MASK "a\x80\xfe\x03\xe7"), STATUS_OK}, /* with what came before */
        {SLICE("\x01\x81" MASK "a\x80\xfe\x03\xe8"), STATUS_WS_MESSAGE_TOO_BIG},
        {SLICE("\x01\x81" MASK "a\x89\x84" MASK), STATUS_OK},  /* a ping between */
        {SLICE("\x81\x01"), STATUS_WS_PROTOCOL_ERROR},         /* no mask */
        {SLICE("\x83\x81"), STATUS_WS_PROTOCOL_ERROR},         /* no such opcode */
        {SLICE("\xc1\x81"), STATUS_WS_PROTOCOL_ERROR},         /* a bit not agreed on */
        {SLICE("\x80\x81"), STATUS_WS_PROTOCOL_ERROR},         /* goes on with nothing */
        {SLICE("\x89\xfe\x00\x7e"), STATUS_WS_PROTOCOL_ERROR}, /* a long ping */
        {SLICE("\x81\x83" MASK "abc\x81\xfe"), STATUS_OK},     /* no size yet */
    };
    for (size_t i = 0; i < CASE_COUNT(cases); i++) {
        struct buffer transcript;
        if (decode(cases[i].bytes, false, &transcript) != cases[i].status)
            fail_msg("case %zu", i);
        buffer_release(&transcript);
    }
}

static void fragments_count_together(void **state) {
    (void)state;
    for (size_t over = 0; over <= 1; over++) {
        struct fixture fixture;
        struct buffer bytes;
        fixture_open(&fixture, MESSAGE_BYTES_MAX, false);
        buffer_init(&bytes, 1 << 20);
        frame_of(&bytes, (struct client_frame){.opcode = WS_BINARY}, 600);
        frame_of(&bytes, (struct client_frame){.opcode = WS_CONTINUATION}, 399);
        frame_of(&bytes, (struct client_frame){.final = true, .opcode = WS_PING}, 125);
        frame_of(&bytes, (struct client_frame){.final = true}, 1 + over);
        assert_int_equal(ws_feed(&fixture.decoder, buffer_slice(&bytes)),
                         over ? STATUS_WS_MESSAGE_TOO_BIG : STATUS_OK);
        buffer_release(&bytes);
        fixture_close(&fixture);
    }
}

static void an_endless_message_of_empty_fragments_ends(void **state) {
    (void)state;
    for (int over = 0; over <= 1; over++) {
        struct fixture fixture;
        fixture_open(&fixture, MESSAGE_BYTES_MAX, false);
        assert_ok(ws_feed(&fixture.decoder, SLICE("\x01\x80" MASK)));
        for (int i = 0; i < WS_EMPTY_FRAGMENTS_MAX - 2 + over; i++)
            assert_ok(ws_feed(&fixture.decoder, SLICE("\x00\x80" MASK)));
        assert_int_equal(ws_feed(&fixture.decoder, SLICE("\x80\x80" MASK)),
                         over ? STATUS_WS_MESSAGE_TOO_BIG : STATUS_OK);
        if (!over)
            assert_slice(buffer_slice(&fixture.transcript), "message 1 0 \n");
        fixture_close(&fixture);
    }
}

static void a_message_may_have_as_many_fragments_as_bytes(void **state) {
    (void)state;
    struct fixture fixture;
    fixture_open(&fixture, 1 << 16, false);
    assert_ok(ws_feed(&fixture.decoder, SLICE("\x02\x81" MASK "a")));
    for (int i = 0; i < (1 << 16) - 2; i++)
        assert_ok(ws_feed(&fixture.decoder, SLICE("\x00\x81" MASK "a")));
    assert_ok(ws_feed(&fixture.decoder, SLICE("\x80\x81" MASK "a")));
    assert_true(slice_starts(buffer_slice(&fixture.transcript), SLICE("message 2 65536 ")));
    /* The next message counts its own empty fragments. */
    assert_ok(ws_feed(&fixture.decoder, SLICE("\x81\x80" MASK)));
    fixture_close(&fixture);
}

static void a_compressed_message_counts_inflated(void **state) {
    (void)state;
    static const char zeros[MESSAGE_BYTES_MAX + 1];
    struct ws_deflater deflater;
    assert_ok(ws_deflater_init(&deflater, 9));
    for (size_t over = 0; over <= 1; over++) {
        struct fixture fixture;
        struct buffer packed, bytes;
        struct slice message = {zeros, MESSAGE_BYTES_MAX + over};
        fixture_open(&fixture, MESSAGE_BYTES_MAX, true);
        buffer_init(&packed, 10000);
        buffer_init(&bytes, 10000);
        assert_ok(ws_deflate(&deflater, &packed, message));
        assert_true(packed.size < 50);
        client_frame_write(&bytes, (struct client_frame){.final = true,
                                                         .compressed = true,
                                                         .opcode = WS_BINARY,
                                                         .mask = 0x12345678,
                                                         .payload = buffer_slice(&packed)});
        assert_int_equal(ws_feed(&fixture.decoder, buffer_slice(&bytes)),
                         over ? STATUS_WS_MESSAGE_TOO_BIG : STATUS_OK);
        assert_true(holds_no_memory(&fixture.decoder));
        buffer_release(&packed);
        buffer_release(&bytes);
        fixture_close(&fixture);
    }
    ws_deflater_release(&deflater);
}

/* ---- memory ---- */

static void between_messages_no_memory_is_held(void **state) {
    (void)state;
    static const struct slice pieces[] = {
        {"\x81\x83" MASK "abc", 9},
        {"\x89\x80" MASK, 6},
        {"\x01\x81" MASK "a\x80\x81" MASK "b", 14},
        {"\xc1\x87" MASK "\xf2\x48\xcd\xc9\xc9\x07\x00", 13},
    };
    struct fixture fixture;
    fixture_open(&fixture, MESSAGE_BYTES_MAX, true);
    for (size_t i = 0; i < CASE_COUNT(pieces); i++) {
        for (size_t cut = 1; cut < pieces[i].size; cut++) {
            struct wslay_frame_context *spare = fixture.shared.spare;
            assert_ok(ws_feed(&fixture.decoder, (struct slice){pieces[i].data, cut}));
            assert_false(holds_no_memory(&fixture.decoder));
            assert_ok(ws_feed(&fixture.decoder, slice_from(pieces[i], cut)));
            assert_true(holds_no_memory(&fixture.decoder));
            /* The context comes back rather than being made anew. */
            assert_non_null(fixture.shared.spare);
            assert_true(!spare || spare == fixture.shared.spare);
        }
    }
    fixture_close(&fixture);
}

static void decoders_of_a_thread_do_not_mix(void **state) {
    (void)state;
    enum { COUNT = 3 };
    const struct slice stream = SLICE("\x01\x81\x01\x02\x03\x04`\x89\x81\x05\x06\x07\x08u\x80\x81"
                                      "\x09\x0a\x0b\x0ck");
    struct ws_shared shared;
    struct ws_decoder decoders[COUNT];
    struct buffer transcripts[COUNT];
    ws_shared_init(&shared);
    for (int i = 0; i < COUNT; i++) {
        buffer_init(&transcripts[i], 1000);
        ws_decoder_init(&decoders[i], &shared, &recording, &transcripts[i], MESSAGE_BYTES_MAX,
                        false);
    }
    for (size_t offset = 0; offset < stream.size; offset++)
        for (int i = 0; i < COUNT; i++)
            assert_ok(ws_feed(&decoders[i], (struct slice){stream.data + offset, 1}));
    for (int i = 0; i < COUNT; i++) {
        assert_slice(buffer_slice(&transcripts[i]), "ping 0 1 p\nmessage 1 2 ab\n");
        assert_true(holds_no_memory(&decoders[i]));
        ws_decoder_release(&decoders[i]);
        buffer_release(&transcripts[i]);
    }
    ws_shared_release(&shared);
}

/* ---- anything, anyhow ---- */

static struct slice random_message(uint64_t *seed, char *room, size_t size_max, bool text) {
    size_t size = test_random(seed) % (test_random(seed) % 4 == 0 ? size_max : 200);
    size_t filled = 0;
    static const char *const characters[] = {"a", "\xc3\xa9", "\xe2\x82\xac", "\xf0\x9f\x9a\x80"};
    while (filled < size) {
        const char *character = characters[test_random(seed) % 4];
        if (!text)
            room[filled++] = (char)test_random(seed);
        else if (filled + strlen(character) <= size)
            for (; *character; character++)
                room[filled++] = *character;
        else
            room[filled++] = 'z';
    }
    return (struct slice){room, size};
}

static void random_control(uint64_t *seed, struct buffer *stream, struct buffer *expected) {
    char payload[125];
    struct slice slice = {payload, test_random(seed) % 126};
    for (size_t i = 0; i < slice.size; i++)
        payload[i] = (char)test_random(seed);
    bool ping = test_random(seed) % 2;
    client_frame_write(stream, (struct client_frame){.final = true,
                                                     .opcode = ping ? WS_PING : WS_PONG,
                                                     .mask = (uint32_t)test_random(seed),
                                                     .payload = slice});
    record(expected, ping ? "ping" : "pong", 0, slice);
}

/* Writes the payload in up to six fragments, with control frames between them. */
static void random_fragments(uint64_t *seed, struct buffer *stream, struct buffer *expected,
                             struct client_frame frame) {
    struct slice rest = frame.payload;
    size_t count = 1 + test_random(seed) % 6;
    for (size_t i = 0; i < count; i++) {
        size_t size = i + 1 == count ? rest.size : test_random(seed) % (rest.size + 1);
        frame.final = i + 1 == count;
        frame.mask = (uint32_t)test_random(seed);
        frame.payload = (struct slice){rest.data, size};
        client_frame_write(stream, frame);
        if (!frame.final && test_random(seed) % 3 == 0)
            random_control(seed, stream, expected);
        rest = slice_from(rest, size);
        frame.opcode = WS_CONTINUATION;
        frame.compressed = false;
    }
}

static void random_stream(uint64_t *seed, struct buffer *stream, struct buffer *expected) {
    static char room[20000];
    struct ws_deflater deflater;
    assert_ok(ws_deflater_init(&deflater, 1));
    for (int i = 0; i < 8; i++) {
        bool text = test_random(seed) % 2, compressed = test_random(seed) % 2;
        struct buffer packed;
        struct slice message = random_message(seed, room, sizeof(room), text);
        buffer_init(&packed, 1 << 20);
        if (compressed)
            assert_ok(ws_deflate(&deflater, &packed, message));
        random_fragments(
            seed, stream, expected,
            (struct client_frame){.compressed = compressed,
                                  .opcode = text ? WS_TEXT : WS_BINARY,
                                  .payload = compressed ? buffer_slice(&packed) : message});
        record(expected, "message", text ? WS_TEXT : WS_BINARY, message);
        if (test_random(seed) % 4 == 0)
            random_control(seed, stream, expected);
        buffer_release(&packed);
    }
    ws_deflater_release(&deflater);
}

static void random_messages_in_random_cuts_come_out_equal(void **state) {
    (void)state;
    for (uint64_t round = 1; round <= 150; round++) {
        uint64_t seed = round;
        struct fixture fixture;
        struct buffer stream, expected;
        buffer_init(&stream, 1 << 22);
        buffer_init(&expected, 1 << 22);
        fixture_open(&fixture, 20100, true);
        random_stream(&seed, &stream, &expected);
        size_t piece_max = 1 + test_random(&seed) % (round % 3 == 0 ? 10 : 9000);
        for (size_t offset = 0; offset < stream.size;) {
            size_t size = 1 + test_random(&seed) % piece_max;
            if (size > stream.size - offset)
                size = stream.size - offset;
            assert_ok(ws_feed(&fixture.decoder, (struct slice){stream.data + offset, size}));
            offset += size;
        }
        assert_true(slice_equal(buffer_slice(&fixture.transcript), buffer_slice(&expected)));
        assert_true(holds_no_memory(&fixture.decoder));
        fixture_close(&fixture);
        buffer_release(&expected);
        buffer_release(&stream);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(valid_frames_are_accepted),
        cmocka_unit_test(invalid_frames_are_refused),
        cmocka_unit_test(every_close_code_is_judged),
        cmocka_unit_test(a_failed_decoder_stays_failed),
        cmocka_unit_test(a_handler_can_end_it),
        cmocka_unit_test(a_message_may_have_the_maximum_and_no_more),
        cmocka_unit_test(a_declared_size_takes_no_memory_before_it_arrives),
        cmocka_unit_test(a_header_is_judged_before_any_payload_comes),
        cmocka_unit_test(fragments_count_together),
        cmocka_unit_test(an_endless_message_of_empty_fragments_ends),
        cmocka_unit_test(a_message_may_have_as_many_fragments_as_bytes),
        cmocka_unit_test(a_compressed_message_counts_inflated),
        cmocka_unit_test(between_messages_no_memory_is_held),
        cmocka_unit_test(decoders_of_a_thread_do_not_mix),
        cmocka_unit_test(random_messages_in_random_cuts_come_out_equal),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
