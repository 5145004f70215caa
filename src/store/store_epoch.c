#include "store/store_epoch.h"

#include <stdio.h>

#include "base/clock.h"

_Static_assert(STORE_EPOCH_SIZE == UUID_TEXT_SIZE, "an epoch is a uuid's text");

enum status store_epoch_mint(char epoch[STORE_EPOCH_SIZE + 1]) {
    struct uuid7_generator generator;
    struct clock clock;
    clock_init(&clock);
    enum status status = uuid7_generator_init(&generator, NULL);
    if (status != STATUS_OK)
        return status;
    struct uuid uuid = uuid7_next(&generator, clock_wall_ms(&clock));
    uuid_format(&uuid, epoch);
    epoch[STORE_EPOCH_SIZE] = '\0';
    return STATUS_OK;
}

enum status store_epoch_renew(const char *url, const uint64_t *fork_log_id,
                              char epoch[STORE_EPOCH_SIZE + 1], struct store_message *message) {
    struct store *store = NULL;
    struct store_session *session = NULL;
    message->text[0] = '\0';
    enum status status = store_open(&store, url, true, message);
    if (status == STATUS_OK)
        status = store_session_open(store, STORE_WRITE, &session);
    if (status == STATUS_OK)
        status = store_note_fork(session);
    if (status == STATUS_OK && fork_log_id)
        status = store_lower_fork(session, *fork_log_id);
    if (status == STATUS_OK)
        status = store_epoch_mint(epoch);
    const struct store_property property = {SLICE("epoch"), slice_of(epoch)};
    if (status == STATUS_OK)
        status = store_put_properties(session, &property, 1);
    if (status != STATUS_OK && !message->text[0])
        snprintf(message->text, sizeof(message->text), "%s",
                 session ? store_session_error(session) : status_message(status));
    store_session_close(session);
    store_close(store);
    return status;
}
