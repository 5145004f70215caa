/* An answer reads the same however it is split. */
#include <stdlib.h>

#include "client/client_error.h"
#include "fuzz.h"

#define BODY_BYTES_MAX 4096

static enum status read_in_pieces(struct answer *answer, struct slice data, size_t piece_bytes) {
    enum status status = STATUS_OK;
    while (status == STATUS_OK && data.size > 0 && !answer->is_complete) {
        size_t used = 0;
        size_t bytes = data.size < piece_bytes ? data.size : piece_bytes;
        status = answer_feed(answer, (struct slice){data.data, bytes}, &used);
        if (used > bytes)
            abort();
        data = slice_from(data, bytes);
    }
    return status == STATUS_OK ? answer_end(answer) : status;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    struct slice text = {(const char *)data, size};
    struct answer whole, split;
    answer_init(&whole, BODY_BYTES_MAX);
    answer_init(&split, BODY_BYTES_MAX);
    enum status first = read_in_pieces(&whole, text, size > 0 ? size : 1);
    enum status second = read_in_pieces(&split, text, 1);
    if ((first == STATUS_OK) != (second == STATUS_OK))
        abort();
    if (first == STATUS_OK) {
        struct client_error a = client_error_of_answer(&whole);
        struct client_error b = client_error_of_answer(&split);
        if (answer_status(&whole) != answer_status(&split) || a.policy != b.policy ||
            strcmp(a.code, b.code) != 0 || a.retry_after_ms != b.retry_after_ms ||
            !slice_equal(buffer_slice(&whole.body), buffer_slice(&split.body)))
            abort();
    }
    answer_release(&whole);
    answer_release(&split);
    return 0;
}
