#include "http/forward/forward_head.h"

#include <assert.h>
#include <strings.h>

#include "wire/http1_response.h"

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

/* Fields that the node writes itself. */
static bool is_replaced(struct slice name) {
    static const struct slice names[] = {
        SLICE("expect"),
        SLICE("host"),
        SLICE("x-request-id"),
        SLICE("khala-forwarded"),
        SLICE("khala-forwarded-proof"),
    };
    return is_one_of(name, names, sizeof(names) / sizeof(names[0]));
}

static enum status write_start(struct buffer *out, const struct http1_request *request) {
    /* No route of another method needs the writer. */
    assert(request->method == HTTP1_METHOD_POST || request->method == HTTP1_METHOD_PUT ||
           request->method == HTTP1_METHOD_DELETE);
    enum status status =
        buffer_append_slice(out, request->method == HTTP1_METHOD_POST  ? SLICE("POST ")
                                 : request->method == HTTP1_METHOD_PUT ? SLICE("PUT ")
                                                                       : SLICE("DELETE "));
    if (status == STATUS_OK)
        status = buffer_append_slice(out, request->path);
    if (status == STATUS_OK && request->query.size > 0)
        status = buffer_append_byte(out, '?');
    if (status == STATUS_OK)
        status = buffer_append_slice(out, request->query);
    if (status == STATUS_OK)
        status = buffer_append_slice(out, SLICE(" HTTP/1.1\r\n"));
    /* A request of HTTP/1.0 may have no host. */
    struct slice host = request->host.size > 0 ? request->host : SLICE("khala");
    return status == STATUS_OK ? http1_response_header(out, SLICE("Host"), host) : status;
}

static enum status write_fields(struct buffer *out, const struct http1_request *request) {
    enum status status = STATUS_OK;
    for (size_t i = 0; status == STATUS_OK && i < request->header_count; i++) {
        const struct http1_header *field = &request->headers[i];
        if (!is_of_connection(field->name) && !is_replaced(field->name) &&
            !http1_header_has_token(request, SLICE("connection"), field->name))
            status = http1_response_header(out, field->name, field->value);
    }
    return status;
}

enum status forward_head_write(struct buffer *out, const struct forward_head *head) {
    const struct http1_header added[] = {
        {SLICE("X-Request-Id"), head->request_id},
        {FORWARDED_FIELD, head->node_id},
        {PROOF_FIELD, head->proof},
    };
    enum status status = write_start(out, head->request);
    if (status == STATUS_OK)
        status = write_fields(out, head->request);
    for (size_t i = 0; status == STATUS_OK && i < sizeof(added) / sizeof(added[0]); i++)
        status = http1_response_header(out, added[i].name, added[i].value);
    if (status == STATUS_OK && head->expects_continue)
        status = http1_response_header(out, SLICE("Expect"), SLICE("100-continue"));
    if (status != STATUS_OK)
        return status;
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
