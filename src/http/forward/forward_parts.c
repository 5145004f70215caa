#include "http/forward/forward_parts.h"

#include <assert.h>
#include <openssl/crypto.h>
#include <openssl/evp.h>
#include <openssl/hmac.h>
#include <strings.h>

#include "wire/json.h"

/* ---- heads ---- */

static bool is_one_of(struct slice name, const struct slice *names, size_t count) {
    for (size_t i = 0; i < count; i++)
        if (name.size == names[i].size && strncasecmp(name.data, names[i].data, name.size) == 0)
            return true;
    return false;
}

/* RFC 9110 section 7.6.1, and the fields that frame a body. */
static bool is_of_connection(struct slice name) {
    static const struct slice names[] = {
        SLICE("connection"),
        SLICE("keep-alive"),
        SLICE("proxy-authenticate"),
        SLICE("proxy-authorization"),
        SLICE("te"),
        SLICE("proxy-connection"),
        SLICE("trailer"),
        SLICE("upgrade"),
        SLICE("transfer-encoding"),
        SLICE("content-length"),
    };
    return is_one_of(name, names, sizeof(names) / sizeof(names[0]));
}

enum status forward_head_write(struct buffer *out, const struct forward_head *head) {
    /* Fields that the node writes itself. */
    static const struct slice replaced[] = {
        SLICE("expect"),
        SLICE("host"),
        SLICE("x-request-id"),
        SLICE("khala-forwarded"),
        SLICE("khala-forwarded-proof"),
    };
    const struct http1_request *request = head->request;
    /* No route of another method needs the writer. */
    assert(request->method == HTTP1_METHOD_POST || request->method == HTTP1_METHOD_PUT ||
           request->method == HTTP1_METHOD_DELETE);
    buffer_append_slice(out, request->method == HTTP1_METHOD_POST  ? SLICE("POST ")
                             : request->method == HTTP1_METHOD_PUT ? SLICE("PUT ")
                                                                   : SLICE("DELETE "));
    buffer_append_slice(out, request->path);
    if (request->query.size > 0)
        buffer_append_byte(out, '?');
    buffer_append_slice(out, request->query);
    buffer_append_slice(out, SLICE(" HTTP/1.1\r\n"));
    /* A request of HTTP/1.0 may have no host. */
    http1_response_header(out, SLICE("Host"),
                          request->host.size > 0 ? request->host : SLICE("khala"));
    for (size_t i = 0; i < request->header_count; i++) {
        const struct http1_header *field = &request->headers[i];
        if (!is_of_connection(field->name) &&
            !is_one_of(field->name, replaced, sizeof(replaced) / sizeof(replaced[0])) &&
            !http1_header_has_token(request, SLICE("connection"), field->name))
            http1_response_header(out, field->name, field->value);
    }
    http1_response_header(out, SLICE("X-Request-Id"), head->request_id);
    http1_response_header(out, FORWARDED_FIELD, head->node_id);
    http1_response_header(out, PROOF_FIELD, head->proof);
    if (head->expects_continue)
        http1_response_header(out, SLICE("Expect"), SLICE("100-continue"));
    return head->is_chunked ? http1_response_end_chunked(out)
                            : http1_response_end_length(out, head->content_length);
}

size_t forward_head_fields(const struct http1_answer *answer,
                           struct http1_header fields[HTTP1_ANSWER_HEADERS_MAX]) {
    size_t count = 0;
    for (size_t i = 0; i < answer->header_count; i++)
        if (!is_of_connection(answer->headers[i].name))
            fields[count++] = answer->headers[i];
    return count;
}

bool forward_is_not_stored(unsigned http_status, struct slice body) {
    return http_status == 503 && (slice_starts(body, SLICE("{\"error\":\"not_writer\"")) ||
                                  slice_starts(body, SLICE("{\"error\":\"writer_lost\"")));
}

enum status forward_refusal(unsigned http_status, struct slice body) {
    static const struct slice start = SLICE("{\"error\":\"");
    if (http_status < 400 || !slice_starts(body, start))
        return STATUS_OK;
    body = slice_from(body, start.size);
    for (int status = 0; status < STATUS_COUNT; status++) {
        struct slice code = slice_of(status_code((enum status)status));
        if (slice_starts(body, code) && body.size > code.size && body.data[code.size] == '"')
            return (enum status)status;
    }
    return STATUS_OK;
}

bool forward_has_identity(struct slice body) {
    const struct json_limits limits = {body.size, JSON_DEPTH_MAX};
    struct json_field fields[] = {{.name = SLICE("event_id")}, {.name = SLICE("idempotency_key")}};
    if (json_read_object(body, &limits, fields, 2) != STATUS_OK)
        return false;
    return (fields[0].present && fields[0].value.kind == JSON_KIND_STRING) ||
           (fields[1].present && fields[1].value.kind == JSON_KIND_STRING);
}

/* ---- the lines of a batch's answer ---- */

/* {"index":N, with [ before it in the first line of an array. */
static void note_index(struct forward_lines *lines, struct slice line) {
    static const struct slice start = SLICE("{\"index\":");
    uint64_t index = 0;
    size_t digits = 0;
    if (lines->form == FORWARD_LINES_ARRAY && slice_starts(line, SLICE("[")))
        line = slice_from(line, 1);
    if (!slice_starts(line, start))
        return;
    line = slice_from(line, start.size);
    for (; digits < line.size && digits < 19; digits++) {
        char byte = line.data[digits];
        if (byte < '0' || byte > '9')
            break;
        index = index * 10 + (uint64_t)(byte - '0');
    }
    if (digits > 0)
        lines->next_index = index + 1;
}

size_t forward_lines_take(struct forward_lines *lines, struct slice text, bool must_go) {
    size_t taken = 0;
    while (taken < text.size) {
        struct slice left = slice_from(text, taken);
        const char *end = memchr(left.data, '\n', left.size);
        if (!end && !must_go)
            break;
        if (!lines->is_inside)
            note_index(lines, left);
        lines->is_inside = !end;
        taken += end ? (size_t)(end - left.data) + 1 : left.size;
    }
    lines->has_passed = lines->has_passed || taken > 0;
    return taken;
}

/* ---- the proof of a node ---- */

/* Keeps these proofs apart from other uses of the key. */
#define PURPOSE      "khala-forwarded:"
#define ID_BYTES_MAX 64

static void write_proof(const uint8_t digest[SHA256_BYTES], struct slice node_id,
                        char text[NODE_PROOF_SIZE + 1]) {
    static const char digits[] = "0123456789abcdef";
    unsigned char mac[SHA256_BYTES];
    unsigned size = sizeof(mac);
    char message[sizeof(PURPOSE) + ID_BYTES_MAX] = PURPOSE;
    assert(node_id.size <= ID_BYTES_MAX);
    memcpy(message + strlen(PURPOSE), node_id.data, node_id.size);
    const unsigned char *made =
        HMAC(EVP_sha256(), digest, SHA256_BYTES, (const unsigned char *)message,
             strlen(PURPOSE) + node_id.size, mac, &size);
    assert(made && size == sizeof(mac));
    (void)made;
    for (size_t i = 0; i < sizeof(mac); i++) {
        text[2 * i] = digits[mac[i] >> 4];
        text[2 * i + 1] = digits[mac[i] & 15];
    }
    text[NODE_PROOF_SIZE] = '\0';
}

void node_proof_write(const struct operator_key *key, struct slice node_id,
                      char text[NODE_PROOF_SIZE + 1]) {
    write_proof(key->digest, node_id, text);
}

bool node_proof_check(const struct operator_key *key, const struct http1_request *request) {
    struct slice node_id, proof;
    char expected[NODE_PROOF_SIZE + 1];
    if (!http1_header_find(request, FORWARDED_FIELD, &node_id) ||
        !http1_header_find(request, PROOF_FIELD, &proof) || proof.size != NODE_PROOF_SIZE ||
        node_id.size > ID_BYTES_MAX)
        return false;
    write_proof(key->digest, node_id, expected);
    bool is_same = CRYPTO_memcmp(expected, proof.data, NODE_PROOF_SIZE) == 0;
    if (!is_same && key->has_previous) {
        write_proof(key->previous_digest, node_id, expected);
        is_same = CRYPTO_memcmp(expected, proof.data, NODE_PROOF_SIZE) == 0;
    }
    return is_same;
}
