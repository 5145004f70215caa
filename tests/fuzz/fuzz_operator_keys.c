/* Any bytes as a request to add or rotate an operator key. What is read is within its limits, and
 * written down again it is read as the same. */
#include <string.h>

#include "api/key_request.h"
#include "base/utf8.h"
#include "fuzz.h"
#include "wire/object_writer.h"

static void check_new(struct slice body) {
    struct key_request first, second;
    char text[OPERATOR_KEY_BODY_BYTES_MAX];
    struct buffer out = buffer_over(text, sizeof(text));
    const char *fault = key_request_read_new(body, &first);
    if (fault) {
        require(utf8_valid(slice_of(fault)));
        return;
    }
    struct slice name = {first.name, first.name_size};
    require(!operator_key_name_problem(name));
    require(first.role > KEY_ROLE_NONE && first.role < KEY_ROLE_COUNT);
    struct object_writer object = object_begin(&out);
    object_text(&object, SLICE("name"), name);
    object_text(&object, SLICE("role"), slice_of(key_role_name(first.role)));
    require(object_end(&object) == STATUS_OK);
    require(!key_request_read_new(buffer_slice(&out), &second));
    require(first.role == second.role && first.name_size == second.name_size);
    require(memcmp(first.name, second.name, sizeof(first.name)) == 0);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    struct key_request rotation;
    struct slice body = {(const char *)data, size};
    check_new(body);
    if (!key_request_read_rotation(body, &rotation))
        require(rotation.overlap_s <= KEY_OVERLAP_S_MAX);
    return 0;
}
