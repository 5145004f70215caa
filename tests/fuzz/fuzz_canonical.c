/* Canonical text is valid, is its own canonical text, hashes alike, and means to jansson what
 * the input meant; what is refused is refused for a reason jansson sees too. */
#include <jansson.h>

#include "fuzz.h"
#include "wire/canonical.h"

#define BYTES_MAX 65536

static json_t *load(struct slice text, json_error_t *error) {
    size_t flags =
        JSON_DECODE_ANY | JSON_ALLOW_NUL | JSON_DECODE_INT_AS_REAL | JSON_REJECT_DUPLICATES;
    return json_loadb(text.data, text.size, flags, error);
}

static void means_the_same(struct slice input, struct slice output) {
    json_error_t error;
    json_t *before = load(input, &error);
    if (!before)
        return require(is_jansson_limit(&error));
    json_t *after = load(output, &error);
    require(after != NULL && json_equal(before, after));
    json_decref(before);
    json_decref(after);
}

static void refused_for_a_reason(struct slice input, enum status status) {
    json_error_t error;
    json_t *tree = load(input, &error);
    require(tree == NULL);
    if (status == STATUS_JSON_DUPLICATE_KEY)
        require(json_error_code(&error) == json_error_duplicate_key || is_jansson_limit(&error));
    else
        require(status == STATUS_JSON_NUMBER_OUT_OF_RANGE &&
                (is_jansson_limit(&error) || json_error_code(&error) == json_error_duplicate_key));
}

static bool has_space_outside_strings(struct slice text) {
    bool quoted = false;
    for (size_t i = 0; i < text.size; i++) {
        if (quoted && text.data[i] == '\\')
            i++;
        else if (text.data[i] == '"')
            quoted = !quoted;
        else if (!quoted && strchr(" \t\r\n", text.data[i]))
            return true;
    }
    return false;
}

static void is_fixed_point(struct slice text, const struct payload_hash *hash) {
    struct json_limits limits = {6 * BYTES_MAX, JSON_DEPTH_MAX};
    struct json_value value;
    require(json_parse(text, &limits, &value) == STATUS_OK);
    require(slice_equal(value.raw, text) && !has_space_outside_strings(text));
    struct canonical_scratch scratch;
    canonical_scratch_init(&scratch, text.size);
    struct payload_hash again;
    require(payload_hash(value, &scratch, &again) == STATUS_OK);
    require(slice_equal(buffer_slice(&scratch.text), text));
    require(memcmp(&again, hash, sizeof(again)) == 0);
    canonical_scratch_release(&scratch);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    struct slice text = {(const char *)data, size};
    struct json_limits limits = {BYTES_MAX, JSON_DEPTH_MAX};
    struct json_value value;
    if (json_parse(text, &limits, &value) != STATUS_OK)
        return 0;
    /* Made for exactly this size: running out of room would be our mistake. */
    struct canonical_scratch scratch;
    canonical_scratch_init(&scratch, value.raw.size);
    struct payload_hash hash;
    enum status status = payload_hash(value, &scratch, &hash);
    if (status == STATUS_OK) {
        means_the_same(value.raw, buffer_slice(&scratch.text));
        is_fixed_point(buffer_slice(&scratch.text), &hash);
    } else {
        refused_for_a_reason(value.raw, status);
    }
    canonical_scratch_release(&scratch);
    return 0;
}
