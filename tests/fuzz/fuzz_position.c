/* Any bytes as a position. Written again, a position that is read has the same text. */
#include "fuzz.h"
#include "topic/position.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    struct slice text = {(const char *)data, size};
    struct position position = {.seq = 7};
    char again[POSITION_BYTES_MAX];
    if (position_read(text, &position) != STATUS_OK) {
        require(position.seq == 7 && !topic_epoch_is_known(&position.epoch));
        return 0;
    }
    struct slice written = position_write(position.seq, position.epoch.text, again);
    if (!topic_epoch_is_known(&position.epoch))
        written.size--;
    require(slice_equal(written, text));
    require(topic_epoch_continues(&position.epoch, &position.epoch));
    return 0;
}
