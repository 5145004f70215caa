/* Any bytes as a request to change quotas. What is read is within its limits, and written down
 * again it is read as the same. */
#include <string.h>

#include "authority/quota.h"
#include "base/utf8.h"
#include "fuzz.h"
#include "wire/json.h"
#include "wire/object_writer.h"

static void write_again(const struct quota_change *change, struct buffer *out) {
    struct object_writer object = object_begin(out);
    for (unsigned i = 0; i < QUOTA_COUNT; i++) {
        struct slice name = slice_of(quota_name((enum quota)i));
        if (change->is_given[i] && change->settings.is_set[i])
            object_number(&object, name, change->settings.value[i]);
        else if (change->is_given[i])
            object_json(&object, name, SLICE("null"));
    }
    require(object_end(&object) == STATUS_OK);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    char message[QUOTA_MESSAGE_BYTES_MAX];
    struct quota_change first, second;
    struct slice body = {(const char *)data, size};
    struct buffer out;
    (void)quota_owner_is_valid(body);
    const char *fault = quota_read_change(body, &first, message);
    if (fault) {
        require(utf8_valid(slice_of(fault)));
        return 0;
    }
    for (unsigned i = 0; i < QUOTA_COUNT; i++) {
        require(first.settings.value[i] <= JSON_INTEGER_MAX);
        require(first.is_given[i] || !first.settings.is_set[i]);
        require(first.settings.is_set[i] || first.settings.value[i] == 0);
    }
    buffer_init(&out, 4096);
    write_again(&first, &out);
    require(!quota_read_change(buffer_slice(&out), &second, message));
    require(memcmp(&first, &second, sizeof(first)) == 0);
    buffer_release(&out);
    return 0;
}
