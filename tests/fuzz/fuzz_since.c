/* Any bytes as a time to read from. A time that is read is within the years of RFC 3339, and a
 * duration never leads ahead of now. */
#include "fuzz.h"
#include "topic/since.h"

/* The last millisecond of the year 9999, with the largest offset. */
#define LAST_MS (UINT64_C(253402300800999) + 24 * 3600 * 1000)

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    struct since since = {true, 7};
    if (since_read((struct slice){(const char *)data, size}, &since) != STATUS_OK) {
        require(since.is_duration && since.ms == 7);
        return 0;
    }
    require(size <= SINCE_BYTES_MAX);
    if (since.is_duration)
        require(since_time_ms(&since, 1000) <= 1000);
    else
        require(since_time_ms(&since, 1000) == since.ms && since.ms <= LAST_MS);
    return 0;
}
