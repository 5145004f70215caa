/* Any bytes as the answer of a server: read whole and in pieces, the same head, body and end come
 * out. Input: the size of a piece, then the stream. */
#include "fuzz.h"
#include "wire/http1_response.h"

struct reading {
    struct http1_answer answer;
    struct buffer body;
    enum status status;
    size_t left; /* bytes after the answer */
};

static const struct http1_peer node = {.is_node = true};

static void read_all(struct reading *reading, struct slice stream, size_t piece_bytes) {
    *reading = (struct reading){.status = STATUS_OK};
    http1_answer_init(&reading->answer, &node);
    buffer_init(&reading->body, stream.size + 1);
    while (reading->status == STATUS_OK && stream.size > 0 &&
           !http1_answer_is_done(&reading->answer)) {
        size_t size = piece_bytes < stream.size ? piece_bytes : stream.size;
        struct slice input = {stream.data, size};
        reading->status = http1_answer_read(&reading->answer, &input, &reading->body);
        stream = slice_from(stream, size - input.size);
        require(reading->status != STATUS_OK || input.size == 0 ||
                http1_answer_is_done(&reading->answer));
    }
    reading->left = stream.size;
    require(reading->answer.head.size <= HTTP1_ANSWER_HEAD_BYTES_MAX);
}

static void reading_release(struct reading *reading) {
    http1_answer_release(&reading->answer);
    buffer_release(&reading->body);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    struct reading whole, pieces;
    struct slice value;
    if (size < 1 || size > 65536)
        return 0;
    struct slice stream = {(const char *)data + 1, size - 1};
    read_all(&whole, stream, SIZE_MAX);
    read_all(&pieces, stream, (size_t)data[0] + 1);
    require(whole.status == pieces.status && whole.answer.part == pieces.answer.part);
    if (whole.status == STATUS_OK) {
        require(whole.left == pieces.left);
        require(slice_equal(buffer_slice(&whole.body), buffer_slice(&pieces.body)));
        require(whole.answer.has_head == pieces.answer.has_head);
        require(whole.answer.is_continued == pieces.answer.is_continued);
    }
    if (whole.status == STATUS_OK && whole.answer.has_head) {
        require(whole.answer.http_status >= 200 && whole.answer.http_status <= 599);
        require(whole.answer.header_count == pieces.answer.header_count);
        require(whole.answer.chunked || whole.body.size <= whole.answer.content_length);
        require(!http1_answer_is_done(&whole.answer) || whole.answer.chunked ||
                whole.body.size == whole.answer.content_length);
        require(http1_answer_find(&whole.answer, SLICE("transfer-encoding"), &value) ==
                whole.answer.chunked);
    }
    reading_release(&whole);
    reading_release(&pieces);
    return 0;
}
