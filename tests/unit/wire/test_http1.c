#include "test.h"

#include "http1_transcript.h"

#define HOST "Host: a\r\n"
#define POST "POST / HTTP/1.1\r\n" HOST

static const struct http1_limits limits = {8192, 16384, 64};

static size_t cut_one(void *user) {
    (void)user;
    return 1;
}

static size_t cut_random(void *user) {
    return 1 + test_random(user) % 17;
}

static void run_one(struct http1_run *run, struct slice input, size_t (*cut)(void *), void *user) {
    *run = (struct http1_run){
        .input = input, .limits = &limits, .body_bytes_max = 1000, .cut = cut, .user = user};
    http1_run(run);
}

/* In one piece, byte by byte and at random cuts; answers the run in one piece. */
static struct http1_run run_all_cuts(struct slice input) {
    struct http1_run whole, other;
    uint64_t seed = input.size;
    run_one(&whole, input, NULL, NULL);
    run_one(&other, input, cut_one, NULL);
    assert_int_equal(other.text.size, whole.text.size);
    assert_memory_equal(other.text.data, whole.text.data, whole.text.size);
    buffer_release(&other.text);
    for (int i = 0; i < 20; i++) {
        run_one(&other, input, cut_random, &seed);
        assert_int_equal(other.text.size, whole.text.size);
        assert_memory_equal(other.text.data, whole.text.data, whole.text.size);
        buffer_release(&other.text);
    }
    return whole;
}

struct row {
    const char *input;
    size_t size;
    enum status status;
};

#define ROW(text, expected)                                                                        \
    { text, sizeof(text) - 1, expected }
#define BAD(text)  ROW(text, STATUS_BAD_REQUEST)
#define GOOD(text) ROW(text, STATUS_OK)

static void check_rows(const struct row *rows, size_t count) {
    for (size_t i = 0; i < count; i++) {
        struct http1_run run = run_all_cuts((struct slice){rows[i].input, rows[i].size});
        if (run.status != rows[i].status)
            fail_msg("row %zu answers %d, not %d:\n%s", i, run.status, rows[i].status,
                     rows[i].input);
        /* Good rows are one whole request each; of a refused one no end was ever seen. */
        if (run.request_count != (run.status == STATUS_OK ? 1 : 0))
            fail_msg("row %zu ends %u requests:\n%s", i, run.request_count, rows[i].input);
        buffer_release(&run.text);
    }
}

#define CHECK_ROWS(rows) check_rows(rows, sizeof(rows) / sizeof(rows[0]))

static void request_lines_are_strict(void **state) {
    (void)state;
    static const struct row rows[] = {
        BAD("GET  / HTTP/1.1\r\n" HOST "\r\n"),
        BAD("GET /  HTTP/1.1\r\n" HOST "\r\n"),
        BAD("GET / HTTP/1.1 \r\n" HOST "\r\n"),
        BAD(" GET / HTTP/1.1\r\n" HOST "\r\n"),
        BAD("GET\t/ HTTP/1.1\r\n" HOST "\r\n"),
        BAD("GET /a b HTTP/1.1\r\n" HOST "\r\n"),
        BAD("GET /a\tb HTTP/1.1\r\n" HOST "\r\n"),
        BAD("GET /a\0b HTTP/1.1\r\n" HOST "\r\n"),
        BAD("GET /a\x7f HTTP/1.1\r\n" HOST "\r\n"),
        BAD("GET /\xc3\xa9 HTTP/1.1\r\n" HOST "\r\n"),
        BAD("GET /\r HTTP/1.1\r\n" HOST "\r\n"),
        BAD("GET / HTTP/1.1\r\r\n" HOST "\r\n"),
        BAD("GET / HTTP/1.1\n" HOST "\r\n"),
        BAD("GET /\r\n" HOST "\r\n"),
        BAD("GET HTTP/1.1\r\n" HOST "\r\n"),
        BAD("GET\r\n" HOST "\r\n"),
        BAD("/ HTTP/1.1\r\n" HOST "\r\n"),
        BAD("GET / http/1.1\r\n" HOST "\r\n"),
        BAD("GET / HTTP/1.10\r\n" HOST "\r\n"),
        BAD("GET / HTTP/1\r\n" HOST "\r\n"),
        BAD("GET / HTTP/1,1\r\n" HOST "\r\n"),
        BAD("GET / HTTP/a.1\r\n" HOST "\r\n"),
        BAD("GET / HTTP/1.+\r\n" HOST "\r\n"),
        BAD("GET / HTTQ/1.1\r\n" HOST "\r\n"),
        BAD("get / HTTP/1.1\r\n" HOST "\r\n"),
        BAD("GETT / HTTP/1.1\r\n" HOST "\r\n"),
        BAD("BREW / HTTP/1.1\r\n" HOST "\r\n"),
        BAD("G@T / HTTP/1.1\r\n" HOST "\r\n"),
        BAD("G\xc3T / HTTP/1.1\r\n" HOST "\r\n"),
        BAD("\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03\r\n\r\n"),
        ROW("CONNECT a:80 HTTP/1.1\r\n" HOST "\r\n", STATUS_METHOD_NOT_ALLOWED),
        ROW("CONNECT / HTTP/1.1\r\n" HOST "Content-Length: 9\r\n\r\nGET / HTT",
            STATUS_METHOD_NOT_ALLOWED),
        ROW("PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", STATUS_UNSUPPORTED_HTTP_VERSION),
        ROW("GET / HTTP/1.2\r\n" HOST "\r\n", STATUS_UNSUPPORTED_HTTP_VERSION),
        ROW("GET / HTTP/0.9\r\n" HOST "\r\n", STATUS_UNSUPPORTED_HTTP_VERSION),
        ROW("GET / HTTP/2.0\r\n" HOST "\r\n", STATUS_UNSUPPORTED_HTTP_VERSION),
        ROW("GET / HTTP/3.1\r\n" HOST "\r\n", STATUS_UNSUPPORTED_HTTP_VERSION),
        GOOD("GET / HTTP/1.1\r\n" HOST "\r\n"),
        GOOD("GET / HTTP/1.0\r\n\r\n"),
        GOOD("\r\n\r\nGET / HTTP/1.1\r\n" HOST "\r\n"),
        BAD("\r\n\r\n\r\nGET / HTTP/1.1\r\n" HOST "\r\n"),
        BAD("\nGET / HTTP/1.1\r\n" HOST "\r\n"),
        BAD("\rGET / HTTP/1.1\r\n" HOST "\r\n"),
        BAD(" \r\nGET / HTTP/1.1\r\n" HOST "\r\n"),
    };
    CHECK_ROWS(rows);
}

static void targets_are_strict(void **state) {
    (void)state;
    static const struct row rows[] = {
        BAD("GET a HTTP/1.1\r\n" HOST "\r\n"),
        BAD("GET a/b HTTP/1.1\r\n" HOST "\r\n"),
        BAD("GET ?a HTTP/1.1\r\n" HOST "\r\n"),
        BAD("GET * HTTP/1.1\r\n" HOST "\r\n"),
        BAD("OPTIONS ** HTTP/1.1\r\n" HOST "\r\n"),
        BAD("GET /a#b HTTP/1.1\r\n" HOST "\r\n"),
        BAD("GET /a?b#c HTTP/1.1\r\n" HOST "\r\n"),
        BAD("GET /\" HTTP/1.1\r\n" HOST "\r\n"),
        BAD("GET /<a> HTTP/1.1\r\n" HOST "\r\n"),
        BAD("GET ftp://a/ HTTP/1.1\r\n" HOST "\r\n"),
        BAD("GET http:/a HTTP/1.1\r\n" HOST "\r\n"),
        BAD("GET http:// HTTP/1.1\r\n" HOST "\r\n"),
        BAD("GET http:///x HTTP/1.1\r\n" HOST "\r\n"),
        BAD("GET http://u@a/ HTTP/1.1\r\n" HOST "\r\n"),
        BAD("GET http://u@a/ HTTP/1.0\r\n\r\n"),
        BAD("GET http://a,b/ HTTP/1.0\r\n\r\n"),
        BAD("GET http://b/ HTTP/1.1\r\n" HOST "\r\n"),
        BAD("GET http://a:80/ HTTP/1.1\r\n" HOST "\r\n"),
        BAD("GET http://a/ HTTP/1.1\r\n\r\n"),
        GOOD("GET http://a HTTP/1.1\r\n" HOST "\r\n"),
        GOOD("GET HTTP://A/x?y HTTP/1.1\r\n" HOST "\r\n"),
        GOOD("GET https://a?y HTTP/1.1\r\n" HOST "\r\n"),
        GOOD("GET http://a/ HTTP/1.0\r\n\r\n"),
        GOOD("OPTIONS * HTTP/1.1\r\n" HOST "\r\n"),
        GOOD("GET //a//b/../c HTTP/1.1\r\n" HOST "\r\n"),
        GOOD("GET /a?b=|{}^`[]\\&c='(d)' HTTP/1.1\r\n" HOST "\r\n"),
        GOOD("GET /?a?b/?/ HTTP/1.1\r\n" HOST "\r\n"),
    };
    CHECK_ROWS(rows);
}

static void fields_are_strict(void **state) {
    (void)state;
    static const struct row rows[] = {
        BAD("GET / HTTP/1.1\r\n" HOST "A: b\n\r\n"),
        BAD("GET / HTTP/1.1\r\n" HOST "A: b\r\n\n"),
        BAD("GET / HTTP/1.1\r\n" HOST "A: b\r\r\n\r\n"),
        BAD("GET / HTTP/1.1\r\n" HOST "A: b\rc\r\n\r\n"),
        BAD("GET / HTTP/1.1\r\n" HOST "A: b\r\n c\r\n\r\n"),
        BAD("GET / HTTP/1.1\r\n" HOST "A: b\r\n\tc\r\n\r\n"),
        BAD("GET / HTTP/1.1\r\n " HOST "\r\n"),
        BAD("GET / HTTP/1.1\r\n" HOST "A : b\r\n\r\n"),
        BAD("GET / HTTP/1.1\r\n" HOST "A\t: b\r\n\r\n"),
        BAD("GET / HTTP/1.1\r\n" HOST ": b\r\n\r\n"),
        BAD("GET / HTTP/1.1\r\n" HOST "A\r\n\r\n"),
        BAD("GET / HTTP/1.1\r\n" HOST "A B: b\r\n\r\n"),
        BAD("GET / HTTP/1.1\r\n" HOST "A(: b\r\n\r\n"),
        BAD("GET / HTTP/1.1\r\n" HOST "A\x80: b\r\n\r\n"),
        BAD("GET / HTTP/1.1\r\n" HOST "A\0: b\r\n\r\n"),
        BAD("GET / HTTP/1.1\r\n" HOST "A: b\0c\r\n\r\n"),
        BAD("GET / HTTP/1.1\r\n" HOST "A: b\x01\r\n\r\n"),
        BAD("GET / HTTP/1.1\r\n" HOST "A: b\x0b\r\n\r\n"),
        BAD("GET / HTTP/1.1\r\n" HOST "A: b\x1f\r\n\r\n"),
        BAD("GET / HTTP/1.1\r\n" HOST "A: b\x7f\r\n\r\n"),
        GOOD("GET / HTTP/1.1\r\n" HOST "A:\r\nB: \t \r\nC:\tx\ty\t\r\nD:z\r\n\r\n"),
        GOOD("GET / HTTP/1.1\r\n" HOST "A: \xc3\xa9\xff\x80\r\n\r\n"),
        GOOD("GET / HTTP/1.1\r\n" HOST "!#$%&'*+-.^_`|~09azAZ: \"(,):;<=>?@[\\]{}\"\r\n\r\n"),
        BAD("GET / HTTP/1.1\r\n" HOST "Authorization: a\r\nauthorization: b\r\n\r\n"),
        BAD("POST / HTTP/1.1\r\n" HOST "Content-Type: a\r\nContent-Type: a\r\n\r\n"),
        BAD("GET / HTTP/1.1\r\n" HOST "Origin: a\r\nOrigin: a\r\n\r\n"),
        GOOD("GET / HTTP/1.1\r\n" HOST "Accept: a\r\nAccept: a\r\n\r\n"),
    };
    CHECK_ROWS(rows);
}

static void hosts_are_strict(void **state) {
    (void)state;
    static const struct row rows[] = {
        BAD("GET / HTTP/1.1\r\n\r\n"),
        BAD("GET / HTTP/1.1\r\nHost:\r\n\r\n"),
        BAD("GET / HTTP/1.1\r\nHost: a\r\nHost: a\r\n\r\n"),
        BAD("GET / HTTP/1.0\r\nHost: a\r\nhOST: b\r\n\r\n"),
        BAD("GET / HTTP/1.1\r\nHost: a b\r\n\r\n"),
        BAD("GET / HTTP/1.1\r\nHost: a, b\r\n\r\n"),
        BAD("GET / HTTP/1.1\r\nHost: a/b\r\n\r\n"),
        BAD("GET / HTTP/1.1\r\nHost: u@a\r\n\r\n"),
        BAD("GET / HTTP/1.1\r\nHost: a?b\r\n\r\n"),
        BAD("GET / HTTP/1.1\r\nHost: \xc3\xa9\r\n\r\n"),
        BAD("GET / HTTP/1.1\r\nHost: a:b\r\n\r\n"),
        BAD("GET / HTTP/1.1\r\nHost: a:1:2\r\n\r\n"),
        BAD("GET / HTTP/1.1\r\nHost: a:123456\r\n\r\n"),
        BAD("GET / HTTP/1.1\r\nHost: :80\r\n\r\n"),
        BAD("GET / HTTP/1.1\r\nHost: ::1\r\n\r\n"),
        BAD("GET / HTTP/1.1\r\nHost: [::1\r\n\r\n"),
        BAD("GET / HTTP/1.1\r\nHost: [\r\n\r\n"),
        BAD("GET / HTTP/1.1\r\nHost: []\r\n\r\n"),
        BAD("GET / HTTP/1.1\r\nHost: [::g]\r\n\r\n"),
        BAD("GET / HTTP/1.1\r\nHost: [::1]a\r\n\r\n"),
        BAD("GET / HTTP/1.1\r\nHost: [::1]:x\r\n\r\n"),
        GOOD("GET / HTTP/1.1\r\nHost: [::1]\r\n\r\n"),
        GOOD("GET / HTTP/1.1\r\nHost: [::ffff:1.2.3.4]:65535\r\n\r\n"),
        GOOD("GET / HTTP/1.1\r\nHost:\t Example-1_x~.COM:80 \r\n\r\n"),
        GOOD("GET / HTTP/1.1\r\nHost: 127.0.0.1:\r\n\r\n"),
    };
    CHECK_ROWS(rows);
}

static void lengths_are_strict(void **state) {
    (void)state;
    static const struct row rows[] = {
        BAD(POST "Content-Length: 1\r\nContent-Length: 1\r\n\r\na"),
        BAD(POST "Content-Length: 1\r\nContent-Length: 2\r\n\r\nab"),
        BAD(POST "Content-Length: 0\r\nContent-Length: 0\r\n\r\n"),
        BAD(POST "Content-Length: 5, 5\r\n\r\nabcde"),
        BAD(POST "Content-Length: 5,5\r\n\r\nabcde"),
        BAD(POST "Content-Length:\r\n\r\n"),
        BAD(POST "Content-Length: +1\r\n\r\na"),
        BAD(POST "Content-Length: -1\r\n\r\na"),
        BAD(POST "Content-Length: 1 1\r\n\r\nabcdeabcdea"),
        BAD(POST "Content-Length: 0x1\r\n\r\na"),
        BAD(POST "Content-Length: 1a\r\n\r\na"),
        BAD(POST "Content-Length: a\r\n\r\na"),
        BAD(POST "Content-Length: 1.0\r\n\r\na"),
        BAD(POST "Content-Length: \xb2\r\n\r\na"),
        BAD(POST "Content-Length: 18446744073709551616\r\n\r\n"),
        BAD(POST "Content-Length: 99999999999999999999999999\r\n\r\n"),
        BAD(POST "Content-Length: 1\t\r\n\r\na"),
        BAD(POST "Content-Length : 1\r\n\r\na"),
        BAD(POST "Content-Length\0: 1\r\n\r\na"),
        BAD(POST "Content-Length: 3\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n"),
        BAD(POST "Transfer-Encoding: chunked\r\nContent-Length: 5\r\n\r\n0\r\n\r\n"),
        BAD(POST "Transfer-Encoding: chunked\r\nContent-Length: 0\r\n\r\n0\r\n\r\n"),
        ROW(POST "Content-Length: 1001\r\n\r\n", STATUS_PAYLOAD_TOO_LARGE),
        ROW(POST "Content-Length: 18446744073709551605\r\n\r\n", STATUS_PAYLOAD_TOO_LARGE),
        GOOD(POST "Content-Length: 0\r\n\r\n"),
        GOOD(POST "Content-Length: 5\r\n\r\nabcde"),
        GOOD(POST "Content-Length: 0005 \r\n\r\na\r\n\0e"),
        GOOD(POST "\r\n"),
        GOOD("GET / HTTP/1.1\r\n" HOST "Content-Length: 2\r\n\r\nab"),
        GOOD("TRACE / HTTP/1.0\r\nContent-Length: 2\r\n\r\nab"),
    };
    CHECK_ROWS(rows);
}

static void transfer_encodings_are_strict(void **state) {
    (void)state;
    static const struct row rows[] = {
        BAD(POST "Transfer-Encoding: chunked\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n"),
        BAD(POST "Transfer-Encoding: gzip\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n"),
        BAD(POST "Transfer-Encoding: chunked, chunked\r\n\r\n0\r\n\r\n"),
        BAD(POST "Transfer-Encoding: chunked, gzip, chunked\r\n\r\n0\r\n\r\n"),
        BAD(POST "Transfer-Encoding: gzip,,chunked\r\n\r\n0\r\n\r\n"),
        BAD(POST "Transfer-Encoding: chunked, gzip\r\n\r\n0\r\n\r\n"),
        BAD(POST "Transfer-Encoding: gzip\r\n\r\n"),
        BAD(POST "Transfer-Encoding: identity\r\n\r\n"),
        BAD(POST "Transfer-Encoding:\r\n\r\n"),
        BAD(POST "Transfer-Encoding: ,chunked\r\n\r\n0\r\n\r\n"),
        BAD(POST "Transfer-Encoding: chunked,\r\n\r\n0\r\n\r\n"),
        BAD(POST "Transfer-Encoding: xchunked\r\n\r\n0\r\n\r\n"),
        BAD(POST "Transfer-Encoding: chunkedx\r\n\r\n0\r\n\r\n"),
        BAD(POST "Transfer-Encoding: chunked;a=b\r\n\r\n0\r\n\r\n"),
        BAD(POST "Transfer-Encoding: \"chunked\"\r\n\r\n0\r\n\r\n"),
        BAD(POST "Transfer-Encoding: chun ked\r\n\r\n0\r\n\r\n"),
        BAD(POST "Transfer-Encoding: \x0b"
                 "chunked\r\n\r\n0\r\n\r\n"),
        BAD(POST "Transfer-Encoding: chunked\t\r\n\r\n0\r\n\r\n"),
        BAD(POST "Transfer-Encoding : chunked\r\n\r\n0\r\n\r\n"),
        BAD(POST "Transfer-Encoding:\r\n chunked\r\n\r\n0\r\n\r\n"),
        BAD(POST "X: a\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n"),
        BAD(POST "X: a\rTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n"),
        BAD("POST / HTTP/1.0\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n"),
        ROW(POST "Transfer-Encoding: gzip, chunked\r\n\r\n0\r\n\r\n",
            STATUS_UNSUPPORTED_TRANSFER_ENCODING),
        ROW(POST "Transfer-Encoding: x,chunked\r\n\r\n0\r\n\r\n",
            STATUS_UNSUPPORTED_TRANSFER_ENCODING),
        GOOD(POST "Transfer-Encoding: chunked\r\n\r\n0\r\n\r\n"),
        GOOD(POST "transfer-encoding:\tChUnKeD \r\n\r\n0\r\n\r\n"),
        GOOD(POST "TE: trailers\r\nTransfer_Encoding: x\r\n\r\n"),
    };
    CHECK_ROWS(rows);
}

#define CHUNKED POST "Transfer-Encoding: chunked\r\n\r\n"

static void chunks_are_strict(void **state) {
    (void)state;
    static const struct row rows[] = {
        BAD(CHUNKED "\r\n\r\n"),
        BAD(CHUNKED "g\r\n"),
        BAD(CHUNKED "-1\r\n"),
        BAD(CHUNKED "+1\r\na\r\n0\r\n\r\n"),
        BAD(CHUNKED "0x1\r\na\r\n0\r\n\r\n"),
        BAD(CHUNKED " 1\r\na\r\n0\r\n\r\n"),
        BAD(CHUNKED "1 \r\na\r\n0\r\n\r\n"),
        BAD(CHUNKED "1\t\r\na\r\n0\r\n\r\n"),
        BAD(CHUNKED "1 x\r\na\r\n0\r\n\r\n"),
        BAD(CHUNKED "1;a=b\r\na\r\n0\r\n\r\n"),
        BAD(CHUNKED "1;\nxx\r\na\r\n0\r\n\r\n"),
        BAD(CHUNKED "0;a\r\n\r\n"),
        BAD(CHUNKED "1\na\r\n0\r\n\r\n"),
        BAD(CHUNKED "1\rXa\r\n0\r\n\r\n"),
        BAD(CHUNKED "1\r\r\na\r\n0\r\n\r\n"),
        BAD(CHUNKED "1\r\na\n0\r\n\r\n"),
        BAD(CHUNKED "1\r\naXY0\r\n\r\n"),
        BAD(CHUNKED "1\r\naX\n0\r\n\r\n"),
        BAD(CHUNKED "1\r\na\rX0\r\n\r\n"),
        BAD(CHUNKED "1\r\na0\r\n\r\n"),
        BAD(CHUNKED "1\r\nab\r\n0\r\n\r\n"),
        BAD(CHUNKED "1\r\na\r\n\r\n0\r\n\r\n"),
        BAD(CHUNKED "0\r\n\n"),
        BAD(CHUNKED "0\n\r\n"),
        BAD(CHUNKED "0\r\nX: y\r\n\r\n"),
        BAD(CHUNKED "0\r\nContent-Length: 5\r\n\r\n"),
        BAD(CHUNKED "0\r\n \r\n\r\n"),
        BAD(CHUNKED "0\r\nGET / HTTP/1.1\r\n"),
        BAD(CHUNKED "0\r\n\rX"),
        BAD(CHUNKED "ffffffffffffffff\r\n"),
        BAD(CHUNKED "10000000000000001\r\na\r\n0\r\n\r\n"),
        BAD(CHUNKED "00000000000000001\r\na\r\n0\r\n\r\n"),
        ROW(CHUNKED "fffffffffffffff\r\n", STATUS_PAYLOAD_TOO_LARGE),
        ROW(CHUNKED "3e9\r\n", STATUS_PAYLOAD_TOO_LARGE),
        ROW(CHUNKED "1\r\na\r\n3e8\r\n", STATUS_PAYLOAD_TOO_LARGE),
        ROW(CHUNKED "1\r\na\r\nffffffffffffffef\r\n", STATUS_PAYLOAD_TOO_LARGE),
        GOOD(CHUNKED "0000000000000001\r\na\r\n0000\r\n\r\n"),
        GOOD(CHUNKED "a\r\n\r\n0\r\n\r\n\0xy\r\n1\r\nz\r\n0\r\n\r\n"),
        GOOD(CHUNKED "0A\r\n0123456789\r\n0\r\n\r\n"),
    };
    CHECK_ROWS(rows);
}

static void expectations_are_strict(void **state) {
    (void)state;
    static const struct row rows[] = {
        ROW(POST "Expect: 200-ok\r\n\r\n", STATUS_EXPECTATION_FAILED),
        ROW(POST "Expect: 100-continue, x\r\n\r\n", STATUS_EXPECTATION_FAILED),
        ROW(POST "Expect:\r\n\r\n", STATUS_EXPECTATION_FAILED),
        GOOD(POST "Expect: 100-Continue\r\nContent-Length: 1\r\n\r\na"),
        GOOD(POST "Expect: 100-continue\r\n\r\n"),
        GOOD("POST / HTTP/1.0\r\nExpect: 100-continue\r\nContent-Length: 1\r\n\r\na"),
    };
    CHECK_ROWS(rows);
}

static void only_a_waiting_peer_is_told_to_continue(void **state) {
    (void)state;
    static const struct {
        const char *text;
        bool waits;
    } rows[] = {
        {POST "Expect: 100-continue\r\nContent-Length: 1\r\n\r\na", true},
        {CHUNKED "0\r\n\r\n", false},
        {POST "Expect: 100-continue\r\n\r\n", false},
        {"POST / HTTP/1.0\r\nExpect: 100-continue\r\nContent-Length: 1\r\n\r\na", false},
    };
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        struct http1_run run = run_all_cuts(slice_of(rows[i].text));
        assert_ok(run.status);
        assert_ok(buffer_append_byte(&run.text, 0));
        assert_int_equal(strstr(run.text.data, " expect ") != NULL, rows[i].waits);
        buffer_release(&run.text);
    }
}

static void blank_lines_are_counted_anew_for_each_request(void **state) {
    (void)state;
    struct http1_run run = run_all_cuts(SLICE("\r\n\r\nGET / HTTP/1.1\r\n" HOST "\r\n"
                                              "\r\n\r\nGET / HTTP/1.1\r\n" HOST "\r\n\r\n\r\n"));
    assert_ok(run.status);
    assert_int_equal(run.request_count, 2);
    buffer_release(&run.text);
}

static void a_head_is_told_in_full(void **state) {
    (void)state;
    struct http1_run run = run_all_cuts(
        SLICE("PATCH /v1/a%20b?x=1&y HTTP/1.1\r\nHost: h:1\r\nX-Y: \t a b \r\nexpect: "
              "100-continue\r\nConnection: Foo, CLOSE\r\nTransfer-Encoding: chunked\r\n\r\n"
              "3\r\nabc\r\n2\r\nde\r\n0\r\n\r\n"));
    assert_slice(buffer_slice(&run.text),
                 "HEAD 4 1.1 /v1/a%20b?x=1&y|h:1|/v1/a%20b|x=1&y body chunked expect 0\n"
                 "Host=h:1\nX-Y=a b\nexpect=100-continue\nConnection=Foo, CLOSE\n"
                 "Transfer-Encoding=chunked\nBODY abcde\nDONE\nLEFT 0\nSTATUS 0\n");
    buffer_release(&run.text);
    run = run_all_cuts(SLICE("GET http://A:1?q HTTP/1.1\r\nHost: a:1\r\n\r\n"));
    assert_slice(buffer_slice(&run.text), "HEAD 0 1.1 http://A:1?q|A:1|/|q keep 0\nHost=a:1\n"
                                          "\nDONE\nLEFT 0\nSTATUS 0\n");
    buffer_release(&run.text);
}

static void every_routed_method_has_its_name(void **state) {
    (void)state;
    static const char *const names[] = {"GET",   "HEAD",   "POST",    "PUT",
                                        "PATCH", "DELETE", "OPTIONS", "PROPFIND"};
    for (int i = 0; i < 8; i++) {
        char text[64], expected[64];
        snprintf(text, sizeof(text), "%s / HTTP/1.0\r\n\r\n", names[i]);
        snprintf(expected, sizeof(expected), "HEAD %d 1.0 /||/| 0\n\nDONE\nLEFT 0\nSTATUS 0\n", i);
        struct http1_run run = run_all_cuts(slice_of(text));
        assert_slice(buffer_slice(&run.text), expected);
        buffer_release(&run.text);
    }
}

static void connections_are_kept_as_both_versions_say(void **state) {
    (void)state;
    static const struct {
        const char *fields;
        bool kept[2];
    } rows[] = {
        {"", {false, true}},
        {"Connection: close\r\n", {false, false}},
        {"Connection: keep-alive\r\n", {true, true}},
        {"Connection: x , Keep-Alive\r\n", {true, true}},
        {"Connection: keep-alive\r\nConnection: close\r\n", {false, false}},
        {"Connection: keep-alive, close\r\n", {false, false}},
        {"Connection: closed\r\n", {false, true}},
        {"Proxy-Connection: close\r\n", {false, true}},
        {"Proxy-Connection: keep-alive\r\n", {false, true}},
    };
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        for (unsigned minor = 0; minor < 2; minor++) {
            char text[128];
            snprintf(text, sizeof(text), "GET / HTTP/1.%u\r\nHost: a\r\n%s\r\n", minor,
                     rows[i].fields);
            struct http1_run run = run_all_cuts(slice_of(text));
            assert_ok(run.status);
            assert_ok(buffer_append_byte(&run.text, 0));
            assert_int_equal(strstr(run.text.data, " keep ") != NULL, rows[i].kept[minor]);
            buffer_release(&run.text);
        }
    }
}

static void an_upgrade_leaves_what_follows_to_the_next_protocol(void **state) {
    (void)state;
    struct http1_run run =
        run_all_cuts(SLICE("GET /s HTTP/1.1\r\n" HOST "Connection: keep-alive, Upgrade\r\n"
                           "Upgrade: websocket\r\n\r\n\x81\x05GET / HTTP"));
    assert_ok(buffer_append_byte(&run.text, 0));
    assert_non_null(strstr(run.text.data, "upgrade 0\n"));
    assert_non_null(strstr(run.text.data, "LEFT 12\n"));
    buffer_release(&run.text);
    static const struct row not_upgrades[] = {
        GOOD("GET / HTTP/1.0\r\nConnection: upgrade\r\nUpgrade: websocket\r\n\r\n"),
        GOOD("GET / HTTP/1.1\r\n" HOST "Connection: upgrade\r\n\r\n"),
        GOOD("GET / HTTP/1.1\r\n" HOST "Upgrade: h2c\r\n\r\n"),
        GOOD("GET / HTTP/1.1\r\n" HOST "Proxy-Connection: upgrade\r\nUpgrade: h2c\r\n\r\n"),
        GOOD(POST "Connection: upgrade\r\nUpgrade: h2c\r\nContent-Length: 2\r\n\r\nab"),
    };
    CHECK_ROWS(not_upgrades);
}

static void three_pipelined_requests_come_one_at_a_time(void **state) {
    (void)state;
    const struct slice stream = SLICE(POST "Content-Length: 3\r\n\r\nabc"
                                           "GET /2 HTTP/1.1\r\n" HOST "\r\n"
                                           "\r\n" CHUNKED "1\r\nz\r\n0\r\n\r\n");
    struct http1_run run = run_all_cuts(stream);
    assert_ok(run.status);
    assert_int_equal(run.request_count, 3);
    buffer_release(&run.text);

    struct http1_parser parser;
    struct http1_event event;
    struct slice input = stream;
    http1_parser_init(&parser, &limits);
    assert_ok(http1_next(&parser, &input, &event));
    assert_int_equal(event.kind, HTTP1_EVENT_HEAD);
    assert_true(slice_starts(input, SLICE("abcGET")));
    assert_ok(http1_allow_body(&parser, 3));
    assert_ok(http1_next(&parser, &input, &event));
    assert_int_equal(event.kind, HTTP1_EVENT_BODY);
    assert_slice(event.piece, "abc");
    assert_ptr_equal(event.piece.data + 3, input.data);
    assert_ok(http1_next(&parser, &input, &event));
    assert_int_equal(event.kind, HTTP1_EVENT_DONE);
    assert_true(slice_starts(input, SLICE("GET /2")));
    /* Until the first is answered its head is there, and the second is not touched. */
    assert_slice(http1_parser_request(&parser)->path, "/");
    http1_finish(&parser);
    assert_null(http1_parser_request(&parser));
    assert_int_equal(http1_parser_bytes(&parser), 0);
    assert_ok(http1_next(&parser, &input, &event));
    assert_int_equal(event.kind, HTTP1_EVENT_HEAD);
    assert_slice(http1_parser_request(&parser)->path, "/2");
    http1_parser_release(&parser);
}

static void a_failure_ends_the_stream(void **state) {
    (void)state;
    struct http1_run run = run_all_cuts(SLICE(
        "GET /1 HTTP/1.1\r\n" HOST "\r\nGET /2 HTTP/1.1\r\n\r\nGET /3 HTTP/1.1\r\n" HOST "\r\n"));
    assert_int_equal(run.status, STATUS_BAD_REQUEST);
    assert_int_equal(run.request_count, 1);
    buffer_release(&run.text);
}

static void a_body_comes_only_where_it_is_allowed(void **state) {
    (void)state;
    struct http1_parser parser;
    struct http1_event event;
    http1_parser_init(&parser, &limits);
    struct slice input = SLICE(POST "Content-Length: 5\r\n\r\nabcde");
    assert_ok(http1_next(&parser, &input, &event));
    assert_int_equal(http1_next(&parser, &input, &event), STATUS_PAYLOAD_TOO_LARGE);
    assert_int_equal(input.size, 5);
    assert_non_null(http1_parser_request(&parser));
    http1_parser_release(&parser);

    input = SLICE(POST "Content-Length: 5\r\n\r\nabcde");
    assert_ok(http1_next(&parser, &input, &event));
    assert_int_equal(http1_allow_body(&parser, 4), STATUS_PAYLOAD_TOO_LARGE);
    assert_int_equal(http1_next(&parser, &input, &event), STATUS_PAYLOAD_TOO_LARGE);
    http1_parser_release(&parser);

    input = SLICE(CHUNKED "4\r\nabcd\r\n1\r\ne\r\n");
    assert_ok(http1_next(&parser, &input, &event));
    assert_ok(http1_allow_body(&parser, 4));
    assert_ok(http1_next(&parser, &input, &event));
    assert_slice(event.piece, "abcd");
    assert_int_equal(http1_next(&parser, &input, &event), STATUS_PAYLOAD_TOO_LARGE);
    assert_slice(input, "e\r\n");
    http1_parser_release(&parser);
}

/* Feeds text repeated until the parser answers; says how many bytes that took. */
static enum status flood(struct http1_parser *parser, const char *start, const char *repeated,
                         size_t *fed) {
    struct http1_event event;
    struct slice input = slice_of(start);
    enum status status = http1_next(parser, &input, &event);
    for (*fed = strlen(start); status == STATUS_OK && *fed < 1000000; *fed += strlen(repeated)) {
        input = slice_of(repeated);
        status = http1_next(parser, &input, &event);
        assert_true(http1_parser_bytes(parser) <=
                    parser->limits->head_bytes_max + 1024 +
                        parser->limits->header_count_max * sizeof(struct http1_header));
    }
    return status;
}

static void what_never_ends_fails_at_its_limit(void **state) {
    (void)state;
    static const struct http1_limits small = {100, 300, 5};
    static const struct {
        const char *start;
        const char *repeated;
        size_t fed;
        enum status status;
    } rows[] = {
        {"", "a", 102, STATUS_URI_TOO_LONG},
        {"GET /", "a", 102, STATUS_URI_TOO_LONG},
        {"GET / HTTP/1.1\r\n", "a", 16 + 102, STATUS_HEADERS_TOO_LARGE},
        {"GET / HTTP/1.1\r\nA: ", "a", 16 + 102, STATUS_HEADERS_TOO_LARGE},
        {"GET / HTTP/1.1\r\n", "A:b\r\n", 16 + 6 * 5, STATUS_HEADERS_TOO_LARGE},
    };
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        struct http1_parser parser;
        size_t fed;
        http1_parser_init(&parser, &small);
        assert_int_equal(flood(&parser, rows[i].start, rows[i].repeated, &fed), rows[i].status);
        assert_int_equal(fed, rows[i].fed);
        assert_int_equal(http1_parser_bytes(&parser), 0);
        http1_parser_release(&parser);
    }
}

static enum status parse_with(const struct http1_limits *tight, struct slice input,
                              size_t *memory_bytes) {
    struct http1_run runs[2];
    for (int i = 0; i < 2; i++) {
        runs[i] = (struct http1_run){.input = input, .limits = tight, .body_bytes_max = 10};
        runs[i].cut = i == 0 ? NULL : cut_one;
        http1_run(&runs[i]);
        buffer_release(&runs[i].text);
    }
    assert_int_equal(runs[0].status, runs[1].status);
    *memory_bytes = runs[1].memory_bytes_max;
    return runs[0].status;
}

static void limits_hold_exactly(void **state) {
    (void)state;
    size_t memory;
    const struct slice request = SLICE("GET /abcdefgh HTTP/1.1\r\nHost: a\r\nB: c\r\n\r\n");
    struct http1_limits tight = {22, request.size, 2};
    assert_ok(parse_with(&tight, request, &memory));
    assert_true(memory <= request.size + 1024);
    tight.line_bytes_max = 21;
    assert_int_equal(parse_with(&tight, request, &memory), STATUS_URI_TOO_LONG);
    tight = (struct http1_limits){22, request.size - 1, 2};
    assert_int_equal(parse_with(&tight, request, &memory), STATUS_HEADERS_TOO_LARGE);
    tight = (struct http1_limits){22, request.size, 1};
    assert_int_equal(parse_with(&tight, request, &memory), STATUS_HEADERS_TOO_LARGE);
    tight = (struct http1_limits){100, 23, 2};
    assert_int_equal(parse_with(&tight, request, &memory), STATUS_URI_TOO_LONG);
    const struct slice wide = SLICE("GET / HTTP/1.1\r\nHost: a\r\nB: 6789012345\r\n\r\n");
    tight = (struct http1_limits){14, wide.size, 2};
    assert_int_equal(parse_with(&tight, wide, &memory), STATUS_OK);
    tight.line_bytes_max = 13;
    assert_int_equal(parse_with(&tight, wide, &memory), STATUS_URI_TOO_LONG);
    const struct slice wider = SLICE("GET / HTTP/1.1\r\nHost: a\r\nB: 67890123456\r\nC: d\r\n\r\n");
    tight.line_bytes_max = 14;
    tight.head_bytes_max = wider.size;
    assert_ok(parse_with(&tight, wide, &memory));
    assert_int_equal(parse_with(&tight, wider, &memory), STATUS_HEADERS_TOO_LARGE);
}

static void an_idle_parser_is_small_and_holds_nothing(void **state) {
    (void)state;
    struct http1_parser parser;
    struct http1_event event;
    struct slice input = SLICE("\r\n");
    assert_true(sizeof(parser) <= 32);
    http1_parser_init(&parser, &limits);
    assert_int_equal(http1_parser_bytes(&parser), 0);
    assert_ok(http1_next(&parser, &input, &event));
    assert_int_equal(http1_parser_bytes(&parser), 0);
    input = (struct slice){NULL, 0};
    assert_ok(http1_next(&parser, &input, &event));
    assert_int_equal(event.kind, HTTP1_EVENT_MORE);
    http1_parser_release(&parser);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(request_lines_are_strict),
        cmocka_unit_test(targets_are_strict),
        cmocka_unit_test(fields_are_strict),
        cmocka_unit_test(hosts_are_strict),
        cmocka_unit_test(lengths_are_strict),
        cmocka_unit_test(transfer_encodings_are_strict),
        cmocka_unit_test(chunks_are_strict),
        cmocka_unit_test(expectations_are_strict),
        cmocka_unit_test(only_a_waiting_peer_is_told_to_continue),
        cmocka_unit_test(blank_lines_are_counted_anew_for_each_request),
        cmocka_unit_test(a_head_is_told_in_full),
        cmocka_unit_test(every_routed_method_has_its_name),
        cmocka_unit_test(connections_are_kept_as_both_versions_say),
        cmocka_unit_test(an_upgrade_leaves_what_follows_to_the_next_protocol),
        cmocka_unit_test(three_pipelined_requests_come_one_at_a_time),
        cmocka_unit_test(a_failure_ends_the_stream),
        cmocka_unit_test(a_body_comes_only_where_it_is_allowed),
        cmocka_unit_test(what_never_ends_fails_at_its_limit),
        cmocka_unit_test(limits_hold_exactly),
        cmocka_unit_test(an_idle_parser_is_small_and_holds_nothing),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
