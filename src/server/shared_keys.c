#include "server/shared_keys.h"

#include <errno.h>
#include <fcntl.h>
#include <openssl/crypto.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/file.h>
#include <unistd.h>

#include "authority/writer.h"
#include "base/file.h"
#include "base/hex.h"
#include "base/limits.h"
#include "base/log.h"
#include "http/admit/gate.h"
#include "http/admit/operator_key.h"
#include "wire/object_writer.h"

static const char *const files[] = {OPERATOR_KEY_FILE, KEYS_FILE};
#define FILE_COUNT (sizeof(files) / sizeof(files[0]))

struct key_text {
    char bytes[SHARED_KEY_BYTES_MAX];
    size_t size;
};

struct key_path {
    char text[4096];
};

static struct key_path path_of(const char *folder, const char *name) {
    struct key_path path;
    snprintf(path.text, sizeof(path.text), "%s/%s", folder, name);
    return path;
}

/* STATUS_NOT_FOUND: there is no such file. */
static enum status read_file(const char *folder, const char *name, struct key_text *text) {
    struct key_path path = path_of(folder, name);
    int file = open(path.text, O_RDONLY | O_CLOEXEC);
    if (file < 0)
        return errno == ENOENT ? STATUS_NOT_FOUND : STATUS_SYSTEM_ERROR;
    ssize_t size = read(file, text->bytes, sizeof(text->bytes));
    close(file);
    text->size = size > 0 ? (size_t)size : 0;
    /* A file of this size is no generated key. */
    return size >= 0 && text->size < sizeof(text->bytes) ? STATUS_OK : STATUS_SYSTEM_ERROR;
}

static enum status write_file(const char *folder, const char *name, struct slice text) {
    return file_replace(path_of(folder, name).text, text);
}

static enum status fetch(struct store_session *session, const char *folder, const char *name) {
    struct key_text held = {.size = 0};
    struct slice kept;
    struct arena arena;
    arena_init(&arena, SHARED_KEY_BYTES_MAX);
    enum status status = store_load_secret(session, slice_of(name), &arena, &kept);
    enum status found = status == STATUS_OK ? read_file(folder, name, &held) : STATUS_OK;
    bool is_same = found == STATUS_OK && status == STATUS_OK &&
                   slice_equal(kept, (struct slice){held.bytes, held.size});
    if (status == STATUS_OK && !is_same)
        status = write_file(folder, name, kept);
    OPENSSL_cleanse(&held, sizeof(held));
    arena_release(&arena);
    return status == STATUS_NOT_FOUND ? STATUS_OK : status;
}

enum status shared_keys_fetch(struct store *store, const char *folder,
                              struct store_session **lock) {
    *lock = NULL;
    if (!store_has_secrets(store))
        return STATUS_OK;
    enum status status = store_session_open(store, STORE_SIDE, lock);
    if (status == STATUS_OK)
        status = store_lock_secrets(*lock);
    for (size_t i = 0; status == STATUS_OK && i < FILE_COUNT; i++)
        status = fetch(*lock, folder, files[i]);
    return status;
}

enum status shared_keys_keep(struct store_session *lock, const char *folder) {
    enum status status = STATUS_OK;
    for (size_t i = 0; lock && status == STATUS_OK && i < FILE_COUNT; i++) {
        struct key_text held = {.size = 0};
        status = read_file(folder, files[i], &held);
        if (status == STATUS_OK)
            status =
                store_keep_secret(lock, slice_of(files[i]), (struct slice){held.bytes, held.size});
        else if (status == STATUS_NOT_FOUND)
            status = STATUS_OK; /* The key is a setting: nothing was generated. */
        OPENSSL_cleanse(&held, sizeof(held));
    }
    return lock && status == STATUS_OK ? store_commit_secrets(lock) : status;
}

enum status shared_keys_renew(struct store_session *side, const char *folder) {
    return fetch(side, folder, KEYS_FILE);
}

/* ---- a rotation ---- */

static enum status rotate_stored(struct store *store, const struct keys_rotation *rotation,
                                 struct buffer *out, char id[KEY_ID_BYTES_MAX + 1]) {
    struct store_session *session = NULL;
    struct arena arena;
    struct slice text;
    arena_init(&arena, SHARED_KEY_BYTES_MAX);
    enum status status = store_session_open(store, STORE_SIDE, &session);
    if (status == STATUS_OK)
        status = store_lock_secrets(session);
    if (status == STATUS_OK)
        status = store_load_secret(session, SLICE(KEYS_FILE), &arena, &text);
    if (status == STATUS_OK)
        status = keys_rotate(text, rotation, out, id);
    if (status == STATUS_OK)
        status = store_replace_secret(session, SLICE(KEYS_FILE), buffer_slice(out));
    if (status == STATUS_OK)
        status = store_commit_secrets(session);
    store_session_close(session);
    arena_release(&arena);
    return status;
}

/* The lock is on the folder, because the file is replaced. */
static enum status rotate_file(const char *folder, const struct keys_rotation *rotation,
                               struct buffer *out, char id[KEY_ID_BYTES_MAX + 1]) {
    struct key_text held = {.size = 0};
    int lock = open(folder, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    enum status status = lock >= 0 && flock(lock, LOCK_EX) == 0 ? STATUS_OK : STATUS_SYSTEM_ERROR;
    if (status == STATUS_OK)
        status = read_file(folder, KEYS_FILE, &held);
    if (status == STATUS_OK)
        status = keys_rotate((struct slice){held.bytes, held.size}, rotation, out, id);
    if (status == STATUS_OK)
        status = write_file(folder, KEYS_FILE, buffer_slice(out));
    int error = errno;
    if (lock >= 0)
        close(lock);
    OPENSSL_cleanse(&held, sizeof(held));
    errno = error;
    return status;
}

enum status shared_keys_rotate(const struct key_place *place, const struct keys_rotation *rotation,
                               char id[KEY_ID_BYTES_MAX + 1]) {
    struct buffer out;
    buffer_init(&out, SHARED_KEY_BYTES_MAX - 1);
    enum status status = place->store && store_has_secrets(place->store)
                             ? rotate_stored(place->store, rotation, &out, id)
                             : rotate_file(place->folder, rotation, &out, id);
    if (out.data)
        OPENSSL_cleanse(out.data, out.size);
    buffer_release(&out);
    return status;
}

/* ---- a move ---- */

enum status shared_keys_copy(const struct key_place *source, const struct key_place *target) {
    struct store_session *reading = NULL;
    struct store_session *writing = NULL;
    enum status status = store_session_open(source->store, STORE_READ, &reading);
    if (status == STATUS_OK)
        status = store_session_open(target->store, STORE_WRITE, &writing);
    for (size_t i = 0; status == STATUS_OK && i < FILE_COUNT; i++) {
        struct key_text held = {.size = 0};
        struct arena arena;
        struct slice key;
        arena_init(&arena, SHARED_KEY_BYTES_MAX);
        if (store_has_secrets(source->store)) {
            status = store_load_secret(reading, slice_of(files[i]), &arena, &key);
            if (status == STATUS_OK && key.size >= SHARED_KEY_BYTES_MAX)
                status = STATUS_INTERNAL_ERROR;
        } else {
            status = read_file(source->folder, files[i], &held);
            key = (struct slice){held.bytes, held.size};
        }
        if (status == STATUS_OK && store_has_secrets(target->store))
            status = store_keep_secret(writing, slice_of(files[i]), key);
        else if (status == STATUS_OK)
            status = write_file(target->folder, files[i], key);
        else if (status == STATUS_NOT_FOUND)
            status = STATUS_OK; /* The key is a setting: nothing was generated. */
        OPENSSL_cleanse(&held, sizeof(held));
        arena_release(&arena);
    }
    store_session_close(writing);
    store_session_close(reading);
    return status;
}

/* ---- the record of changed keys ---- */

#define IDEMPOTENCY_PREFIX "signing-keys:"

struct keys_record {
    struct append_group group;
    struct append_request request;
    struct buffer payload;
    char idempotency_key[sizeof(IDEMPOTENCY_PREFIX) - 1 + 2 * SHA256_BYTES];
};

static void record_free(struct keys_record *record) {
    arena_release(&record->group.arena);
    buffer_release(&record->payload);
    free(record);
}

/* On the writer's thread. */
static void recorded(struct append_group *group) {
    struct keys_record *record = group->user;
    enum status status = record->request.status;
    if (status != STATUS_OK && status != STATUS_NOT_WRITER && status != STATUS_WRITER_LOST)
        log_event(LOG_ERROR, "operator.unrecorded", log_str("status", status_code(status)),
                  log_str("event_type", "operator.signing_keys_changed"),
                  log_slice("payload", buffer_slice(&record->payload)));
    record_free(record);
}

void keys_record(struct writer *writer, const struct gate *gate, uint8_t digest[SHA256_BYTES]) {
    uint8_t before[SHA256_BYTES];
    struct keys_record *record = calloc(1, sizeof(*record));
    if (!record)
        return;
    struct buffer *out = &record->payload;
    buffer_init(out, RECORD_EVENT_BYTES_MAX);
    arena_init(&record->group.arena, RECORD_BYTES_MAX);
    /* {"kids":["new","old"]}: the ids of all keys that verify, the newest first. */
    struct key_set *keys = keys_current(gate->keys);
    struct object_writer event = object_begin(out);
    buffer_append_slice(out, SLICE("\"kids\":["));
    for (size_t i = 0; i < keys->count; i++) {
        if (i > 0)
            buffer_append_byte(out, ',');
        (void)json_write_string(out, slice_of(keys->keys[i].id));
    }
    buffer_append_byte(out, ']');
    enum status status = object_end(&event);
    key_set_unref(keys);
    memcpy(before, digest, sizeof(before));
    if (status == STATUS_OK)
        sha256(out->data, out->size, digest);
    if (status != STATUS_OK || !writer || memcmp(before, digest, sizeof(before)) == 0) {
        record_free(record);
        return;
    }
    struct append_request *request = &record->request;
    *request = (struct append_request){
        .kind = APPEND_AUDIT_EVENT,
        .event_type = SLICE("operator.signing_keys_changed"),
        .payload = buffer_slice(out),
        .idempotency_key = {record->idempotency_key, sizeof(record->idempotency_key)},
        .is_rate_free = true,
        .room_least = STORE_ROOM_LAST,
    };
    memcpy(request->payload_hash, digest, SHA256_BYTES);
    memcpy(record->idempotency_key, IDEMPOTENCY_PREFIX, sizeof(IDEMPOTENCY_PREFIX) - 1);
    hex_write(record->idempotency_key + sizeof(IDEMPOTENCY_PREFIX) - 1, digest, SHA256_BYTES);
    record->group.requests = request;
    record->group.request_count = 1;
    record->group.user = record;
    record->group.done = recorded;
    /* Once it is posted, the record is the writer's. */
    status = writer_post(writer, &record->group);
    if (status == STATUS_OK)
        return;
    request->status = status;
    recorded(&record->group);
}
