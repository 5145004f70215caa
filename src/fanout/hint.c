#include "fanout/hint.h"

#include <assert.h>
#include <string.h>

#define VERSION_BYTES 2
#define EPOCH_END     (VERSION_BYTES + UUID_TEXT_SIZE)

static const char version[VERSION_BYTES] = {'1', ' '};

void hint_write(const struct hint *hint, char text[HINT_BYTES]) {
    assert(hint->log_id > 0 && hint->log_id <= HINT_LOG_ID_MAX);
    memcpy(text, version, VERSION_BYTES);
    memcpy(text + VERSION_BYTES, hint->epoch, UUID_TEXT_SIZE);
    text[EPOCH_END] = ' ';
    uint64_t left = hint->log_id;
    for (size_t i = HINT_BYTES; i > EPOCH_END + 1; i--) {
        text[i - 1] = (char)('0' + left % 10);
        left /= 10;
    }
}

static bool parse_log_id(const char *digits, uint64_t *log_id) {
    uint64_t number = 0;
    for (size_t i = 0; i < HINT_LOG_ID_BYTES; i++) {
        if (digits[i] < '0' || digits[i] > '9')
            return false;
        uint64_t digit = (uint64_t)(digits[i] - '0');
        if (number > (HINT_LOG_ID_MAX - digit) / 10)
            return false;
        number = number * 10 + digit;
    }
    *log_id = number;
    return number > 0;
}

enum status hint_parse(struct slice text, struct hint *hint) {
    struct uuid epoch;
    struct hint made = {.log_id = 0};
    if (text.size != HINT_BYTES || memcmp(text.data, version, VERSION_BYTES) != 0 ||
        text.data[EPOCH_END] != ' ')
        return STATUS_INVALID_REQUEST;
    memcpy(made.epoch, text.data + VERSION_BYTES, UUID_TEXT_SIZE);
    if (uuid7_parse((struct slice){made.epoch, UUID_TEXT_SIZE}, &epoch) != STATUS_OK ||
        !parse_log_id(text.data + EPOCH_END + 1, &made.log_id))
        return STATUS_INVALID_REQUEST;
    *hint = made;
    return STATUS_OK;
}
