/* An answer reads the same however it is split. */
#include "client/client_error.h"
#include "client/http_call.h"
#include "fuzz.h"

#define BODY_BYTES_MAX 4096

static enum status read_in_pieces(struct http_answer *answer, struct slice data,
                                  size_t piece_bytes) {
    enum status status = STATUS_OK;
    http1_answer_init(&answer->head, &http_answer_peer);
    buffer_init(&answer->body, BODY_BYTES_MAX);
    while (status == STATUS_OK && data.size > 0 && !http1_answer_is_done(&answer->head)) {
        size_t bytes = data.size < piece_bytes ? data.size : piece_bytes;
        struct slice input = {data.data, bytes};
        status = http1_answer_read(&answer->head, &input, &answer->body);
        data = slice_from(data, bytes);
    }
    return status == STATUS_OK ? http1_answer_end(&answer->head) : status;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    struct slice text = {(const char *)data, size};
    struct http_answer whole, split;
    enum status first = read_in_pieces(&whole, text, size > 0 ? size : 1);
    enum status second = read_in_pieces(&split, text, 1);
    require((first == STATUS_OK) == (second == STATUS_OK));
    if (first == STATUS_OK) {
        struct client_error a = client_error_of_answer(&whole);
        struct client_error b = client_error_of_answer(&split);
        require(whole.head.http_status == split.head.http_status && a.policy == b.policy);
        require(strcmp(a.code, b.code) == 0 && a.retry_after_ms == b.retry_after_ms);
        require(slice_equal(buffer_slice(&whole.body), buffer_slice(&split.body)));
    }
    http1_answer_release(&whole.head);
    http1_answer_release(&split.head);
    buffer_release(&whole.body);
    buffer_release(&split.body);
    return 0;
}
