/* Chooses the engine by the scheme of a URL. A URL may hold a password, so no message repeats it.
 */
#include <stdio.h>

#include "base/clock.h"
#include "store/store_engine.h"
#include "store/store_marks.h"

static const struct store_engine *const engines[] = {&store_engine_sqlite, &store_engine_postgres};

static bool has_scheme(const char *url, const char *scheme) {
    size_t size = scheme ? strlen(scheme) : 0;
    return size > 0 && strncmp(url, scheme, size) == 0 && url[size] == ':';
}

/* A text without a known scheme is a folder's name, which may hold a colon. */
static const struct store_engine *choose_engine(const char *url, const char **location) {
    for (size_t i = 0; i < sizeof(engines) / sizeof(engines[0]); i++)
        if (has_scheme(url, engines[i]->scheme) || has_scheme(url, engines[i]->scheme_alias)) {
            *location = strchr(url, ':') + 1;
            return engines[i];
        }
    *location = url;
    return &store_engine_sqlite;
}

int store_schema_version(const char *url) {
    const char *location;
    return choose_engine(url, &location)->schema_version;
}

/* The authority of a URL ends with the first of these. */
void store_url_label(const char *url, char *label, size_t size) {
    const char *location;
    const struct store_engine *engine = choose_engine(url, &location);
    if (!engine->scheme_alias || strncmp(location, "//", 2) != 0) {
        snprintf(label, size, "%s", location);
        return;
    }
    const char *host = location + 2;
    size_t authority = strcspn(host, "/?#");
    for (size_t i = 0; i < authority; i++)
        if (location[2 + i] == '@')
            host = location + 2 + i + 1;
    /* Parameters may hold a password too. */
    snprintf(label, size, "%s://%.*s", engine->scheme, (int)strcspn(host, "?#"), host);
}

static enum status lacks_maintenance(const struct store_engine *engine,
                                     struct store_message *message) {
    snprintf(message->text, sizeof(message->text), "%s", engine->maintenance_advice);
    return STATUS_INVALID_CONFIG;
}

enum status store_open_unchecked(struct store **store, const char *url, bool exclusive,
                                 struct store_message *message) {
    const char *location;
    const struct store_engine *engine = choose_engine(url, &location);
    return engine->open(store, location, exclusive, message);
}

/* The store, unless a move keeps it from being opened in this way. */
static enum status check_marks(struct store *opened, const char *url, bool exclusive,
                               struct store **store, struct store_message *message) {
    char label[STORE_MESSAGE_MAX];
    store_url_label(url, label, sizeof(label));
    enum status status = store_marks_check(opened, exclusive, label, message);
    if (status == STATUS_OK)
        *store = opened;
    else
        store_close(opened);
    return status;
}

enum status store_open(struct store **store, const char *url, bool exclusive,
                       struct store_message *message) {
    struct store *opened = NULL;
    enum status status = store_open_unchecked(&opened, url, exclusive, message);
    return status == STATUS_OK ? check_marks(opened, url, exclusive, store, message) : status;
}

enum status store_join(struct store **store, const char *url, struct store_message *message) {
    const char *location;
    const struct store_engine *engine = choose_engine(url, &location);
    struct store *opened = NULL;
    enum status status = engine->join ? engine->join(&opened, location, message)
                                      : engine->open(&opened, location, true, message);
    return status == STATUS_OK ? check_marks(opened, url, true, store, message) : status;
}

bool store_is_shared(const struct store *store) {
    return store->engine->join != NULL;
}

enum status store_migrate(const char *url, struct store_message *message) {
    const char *location;
    const struct store_engine *engine = choose_engine(url, &location);
    return engine->migrate(location, message);
}

enum status store_backup(const char *url, const char *file,
                         const struct store_copy_options *options, struct store_copy *copy,
                         struct store_message *message) {
    const char *location;
    const struct store_engine *engine = choose_engine(url, &location);
    return engine->backup ? engine->backup(location, file, options, copy, message)
                          : lacks_maintenance(engine, message);
}

enum status store_restore_begin(const char *url, const char *file,
                                const struct store_copy_options *options,
                                struct store_restore **restore, struct store_message *message) {
    const char *location;
    const struct store_engine *engine = choose_engine(url, &location);
    return engine->restore_begin ? engine->restore_begin(location, file, options, restore, message)
                                 : lacks_maintenance(engine, message);
}

struct store *store_restore_copy(struct store_restore *restore) {
    return restore->engine->restore_copy(restore);
}

enum status store_restore_apply(struct store_restore *restore, struct store_restored *restored,
                                struct store_message *message) {
    return restore->engine->restore_apply(restore, restored, message);
}

void store_restore_end(struct store_restore *restore) {
    if (restore)
        restore->engine->restore_end(restore);
}

enum status store_check_pages(struct store_session *session, bool whole,
                              struct store_message *message) {
    const struct store_engine *engine = session->engine;
    return engine->check_pages ? engine->check_pages(session, whole, message)
                               : lacks_maintenance(engine, message);
}

enum status store_check_derived(struct store_session *session, struct store_message *message) {
    return session->engine->check_derived(session, message);
}

pid_t store_lock_holder(const char *url) {
    const char *location;
    const struct store_engine *engine = choose_engine(url, &location);
    return engine->lock_holder ? engine->lock_holder(location) : 0;
}

/* ---- epochs ---- */

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
