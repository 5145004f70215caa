/* Operator keys with names: GET and POST /internal/v1/keys, DELETE /internal/v1/keys/{name}, POST
 * /internal/v1/keys/{name}/rotate.
 *
 * A change is recorded first. Then the writer's thread changes the row and the keys in memory. A
 * key that ends is also revoked by its id, which ends its open streams on every node before the
 * answer. The other nodes read the keys before they confirm a revocation, and in any case with each
 * beat. Where the revocation fails, each node ends the streams when it finds that the key is gone.
 */
#include <openssl/crypto.h>
#include <stdlib.h>

#include "api/api.h"
#include "api/handlers.h"
#include "api/key_request.h"
#include "api/record.h"
#include "api/revoke.h"
#include "base/log.h"
#include "http/store_read.h"

#define MS_PER_S         1000
#define ANSWER_BYTES_MAX 2048

static void refuse(struct exchange *exchange, enum status status, const char *message) {
    exchange_answer_error(exchange, &(struct exchange_error){.status = status, .message = message});
}

/* ---- listing ---- */

static void write_number(struct object_writer *object, struct slice name, uint64_t number) {
    if (number > 0)
        object_number(object, name, number);
    else
        object_json(object, name, SLICE("null"));
}

static enum status list_key(void *user, const struct store_operator_key *key) {
    struct store_read *read = user;
    bool is_rotating = key->previous_id.data && key->previous_until_ms > read->now_ms;
    (void)buffer_append_byte(&read->out, ',');
    struct object_writer object = object_begin(&read->out);
    object_text(&object, SLICE("name"), key->name);
    object_text(&object, SLICE("role"), key->role);
    object_text(&object, SLICE("source"), SLICE("store"));
    object_text(&object, SLICE("key_id"), key->id);
    object_number(&object, SLICE("created_at"), key->created_at_ms);
    write_number(&object, SLICE("rotated_at"), key->rotated_at_ms);
    write_number(&object, SLICE("previous_until"), is_rotating ? key->previous_until_ms : 0);
    object_close(&object);
    return buffer_status(&read->out);
}

static void list_setting(struct buffer *out, const struct principal *principal,
                         const char *source) {
    struct object_writer object = object_begin(out);
    object_text(&object, SLICE("name"), principal->subject);
    object_text(&object, SLICE("role"), slice_of(key_role_name(principal->role)));
    object_text(&object, SLICE("source"), slice_of(source));
    object_close(&object);
}

static void list_keys(struct store_read *read, struct store_session *session) {
    const struct http *http = read->exchange->http;
    bool is_setting = http->operator_key.source == OPERATOR_KEY_GIVEN;
    (void)buffer_append_slice(&read->out, SLICE("{\"items\":["));
    list_setting(&read->out, &principal_operator, is_setting ? "setting" : "file");
    if (http->has_mint_key) {
        (void)buffer_append_byte(&read->out, ',');
        list_setting(&read->out, &principal_mint_key, "setting");
    }
    read->status = store_walk_operator_keys(session, read, list_key);
    if (read->status == STATUS_OK)
        read->status = buffer_append_slice(&read->out, SLICE("]}\n"));
}

void handle_keys(struct exchange *exchange) {
    struct store_read *read = store_read_new(exchange, ENTITY_TOPIC, list_keys);
    if (!read)
        return;
    read->now_ms = clock_wall_ms(&exchange->loop->clock);
    store_read_post(read);
}

/* ---- changing ---- */

struct key_work {
    struct revoke_work revoke; /* of the keys that end */
    struct key_request request;
    char text[OPERATOR_KEY_TEXT_SIZE + 1]; /* of the new key, until it is answered */
    uint8_t digest[SHA256_BYTES];
    char id[OPERATOR_KEY_ID_SIZE]; /* of the new key */
    struct slice key_id;           /* of the key that the record names */
    struct store_operator_key row; /* its texts are in memory */
    struct arena memory;
    bool is_found;
};

static void work_free(void *memory) {
    struct key_work *work = memory;
    revoke_request_release(&work->revoke.request);
    arena_release(&work->memory);
    OPENSSL_cleanse(work->text, sizeof(work->text));
    free(work);
}

static struct slice name_of(const struct key_work *work) {
    return (struct slice){work->request.name, work->request.name_size};
}

static enum status find_row(void *user, const struct store_operator_key *key) {
    struct key_work *work = user;
    if (!slice_equal(key->name, name_of(work)))
        return STATUS_OK;
    work->row = *key;
    work->row.name = name_of(work);
    work->row.role = arena_copy(&work->memory, key->role);
    work->row.id = arena_copy(&work->memory, key->id);
    if (key->previous_id.data)
        work->row.previous_id = arena_copy(&work->memory, key->previous_id);
    work->is_found = true;
    return work->row.role.data && work->row.id.data &&
                   (work->row.previous_id.data || !key->previous_id.data)
               ? STATUS_OK
               : STATUS_OUT_OF_MEMORY;
}

/* On the writer's thread, like the next ones. Only the writer changes keys, so what it reads stays
 * true until it writes. */
static enum status read_keys(struct key_work *work, struct store_session *session) {
    enum status status = operator_keys_read(work->revoke.exchange->http->operator_keys, session);
    return status == STATUS_OK ? store_walk_operator_keys(session, work, find_row) : status;
}

static enum status put_key(struct key_work *work, struct store_session *session) {
    struct operator_keys *keys = work->revoke.exchange->http->operator_keys;
    enum status status = store_put_operator_key(session, &work->row);
    if (status != STATUS_OK)
        return status;
    status = operator_keys_read(keys, session);
    /* The old secret must not stay valid in memory. */
    if (status != STATUS_OK)
        operator_keys_drop(keys, work->row.name);
    return status;
}

static enum status add(struct revoke_work *revoke, struct store_session *session) {
    struct key_work *work = container_of(revoke, struct key_work, revoke);
    enum status status = read_keys(work, session);
    if (status == STATUS_OK && work->is_found)
        status = STATUS_ALREADY_EXISTS;
    if (status == STATUS_OK && operator_keys_is_full(revoke->exchange->http->operator_keys))
        status = STATUS_LIMIT_REACHED;
    if (status != STATUS_OK)
        return status;
    work->row = (struct store_operator_key){
        .name = name_of(work),
        .role = slice_of(key_role_name(work->request.role)),
        .id = {work->id, sizeof(work->id)},
        .created_at_ms = revoke->now_ms,
    };
    memcpy(work->row.digest, work->digest, SHA256_BYTES);
    return put_key(work, session);
}

static enum status rotate(struct revoke_work *revoke, struct store_session *session) {
    struct key_work *work = container_of(revoke, struct key_work, revoke);
    struct store_operator_key *row = &work->row;
    enum status status = read_keys(work, session);
    if (status == STATUS_OK && !work->is_found)
        status = STATUS_NOT_FOUND;
    if (status != STATUS_OK)
        return status;
    /* One old key at most is valid beside the new one. */
    if (row->previous_id.data)
        revoke_add(revoke, REVOCATION_TOKEN, row->previous_id);
    if (work->request.overlap_s == 0)
        revoke_add(revoke, REVOCATION_TOKEN, row->id);
    row->previous_id = work->request.overlap_s > 0 ? row->id : (struct slice){NULL, 0};
    memcpy(row->previous_digest, row->digest, SHA256_BYTES);
    row->previous_until_ms =
        work->request.overlap_s > 0 ? revoke->now_ms + work->request.overlap_s * MS_PER_S : 0;
    row->id = (struct slice){work->id, sizeof(work->id)};
    memcpy(row->digest, work->digest, SHA256_BYTES);
    row->rotated_at_ms = revoke->now_ms;
    return put_key(work, session);
}

/* The row goes first: a crash before the revocation leaves no key that becomes valid again when the
 * revocation is forgotten. */
static enum status remove_key(struct revoke_work *revoke, struct store_session *session) {
    struct key_work *work = container_of(revoke, struct key_work, revoke);
    enum status status = read_keys(work, session);
    if (status == STATUS_OK && !work->is_found)
        status = STATUS_NOT_FOUND;
    if (status != STATUS_OK)
        return status;
    revoke_add(revoke, REVOCATION_TOKEN, work->row.id);
    if (work->row.previous_id.data)
        revoke_add(revoke, REVOCATION_TOKEN, work->row.previous_id);
    status = store_drop_operator_key(session, work->row.name);
    if (status == STATUS_OK)
        operator_keys_drop(revoke->exchange->http->operator_keys, work->row.name);
    return status;
}

/* ---- answering, on the loop ---- */

static void answer(struct revoke_work *revoke) {
    struct key_work *work = container_of(revoke, struct key_work, revoke);
    struct exchange *exchange = revoke->exchange;
    const struct store_operator_key *row = &work->row;
    bool is_new = revoke->first == add;
    struct buffer out;
    if (revoke->status != STATUS_OK) {
        refuse(exchange, revoke->status,
               revoke->status == STATUS_NOT_FOUND        ? "There is no key of this name."
               : revoke->status == STATUS_ALREADY_EXISTS ? "There is a key of this name."
                                                         : NULL);
        return;
    }
    log_event(LOG_INFO, "operator_keys.changed",
              log_slice("request_id", exchange_request_id(exchange)), log_slice("name", row->name),
              log_slice("role", row->role),
              log_str("change", is_new                        ? "added"
                                : revoke->first == remove_key ? "removed"
                                                              : "rotated"));
    buffer_init(&out, ANSWER_BYTES_MAX);
    struct object_writer object = object_begin(&out);
    object_text(&object, SLICE("name"), row->name);
    object_text(&object, SLICE("role"), row->role);
    if (revoke->first != remove_key) {
        object_text(&object, SLICE("key"), slice_of(work->text));
        object_text(&object, SLICE("key_id"), row->id);
        object_number(&object, SLICE("created_at"), row->created_at_ms);
        write_number(&object, SLICE("rotated_at"), row->rotated_at_ms);
        write_number(&object, SLICE("previous_until"), row->previous_until_ms);
    }
    object_number(&object, SLICE("keys_revoked"), revoke->request.count);
    object_number(&object, SLICE("nodes_unconfirmed"), revoke->wait.unconfirmed);
    enum status status = object_end(&object);
    if (status == STATUS_OK)
        status = buffer_append_byte(&out, '\n');
    if (status == STATUS_OK)
        exchange_answer_json(exchange, is_new ? 201 : 200, buffer_slice(&out));
    else
        exchange_answer_status(exchange, status);
    if (out.data)
        OPENSSL_cleanse(out.data, out.size);
    buffer_release(&out);
}

/* ---- the request ---- */

/* NULL: the exchange was answered. */
static struct key_work *work_new(struct exchange *exchange,
                                 enum status (*change)(struct revoke_work *revoke,
                                                       struct store_session *session)) {
    struct key_work *work = calloc(1, sizeof(*work));
    if (!work) {
        exchange_answer_status(exchange, STATUS_OUT_OF_MEMORY);
        return NULL;
    }
    arena_init(&work->memory, ANSWER_BYTES_MAX);
    buffer_init(&work->revoke.request.texts, 1);
    work->revoke.first = change;
    work->revoke.answer = answer;
    exchange->work = work;
    exchange->work_free = work_free;
    return work;
}

/* False: no key can have the name of the path, and the exchange was answered. */
static bool take_name(struct key_work *work) {
    struct slice name = work->revoke.exchange->match.parameters[0];
    if (operator_key_name_problem(name)) {
        refuse(work->revoke.exchange, STATUS_NOT_FOUND, "There is no key of this name.");
        return false;
    }
    memcpy(work->request.name, name.data, name.size);
    work->request.name_size = name.size;
    return true;
}

static bool make_key(struct key_work *work) {
    struct exchange *exchange = work->revoke.exchange;
    struct uuid id = uuid7_next(&exchange->loop->ids, clock_wall_ms(&exchange->loop->clock));
    memcpy(work->id, OPERATOR_KEY_ID_PREFIX, sizeof(OPERATOR_KEY_ID_PREFIX) - 1);
    uuid_format(&id, work->id + sizeof(OPERATOR_KEY_ID_PREFIX) - 1);
    work->key_id = (struct slice){work->id, sizeof(work->id)};
    enum status status = operator_key_make(work->text, work->digest);
    if (status != STATUS_OK)
        exchange_answer_status(exchange, status);
    return status == STATUS_OK;
}

static void record(struct key_work *work, const char *type) {
    struct exchange *exchange = work->revoke.exchange;
    struct record *record = record_new(exchange, 1);
    if (!record)
        return;
    struct object_writer event = record_begin(record);
    object_text(&event, SLICE("key_id"), work->key_id);
    object_text(&event, SLICE("name"), name_of(work));
    if (work->revoke.first == rotate)
        object_number(&event, SLICE("overlap_seconds"), work->request.overlap_s);
    if (work->revoke.first == add)
        object_text(&event, SLICE("role"), slice_of(key_role_name(work->request.role)));
    record_end(record, &event, type);
    /* A key may end itself: its request goes on, and gets the answer. */
    principal_unref(exchange->principal);
    exchange->principal = &principal_operator;
    record_post(record, revoke_post);
}

void handle_key_add(struct exchange *exchange) {
    struct key_work *work = revoke_is_possible(exchange) ? work_new(exchange, add) : NULL;
    if (!work)
        return;
    revoke_begin(&work->revoke, exchange);
    const char *fault = key_request_read_new(buffer_slice(&exchange->body), &work->request);
    const struct principal *known =
        fault ? NULL : operator_keys_named(exchange->http->operator_keys, name_of(work));
    if (fault)
        refuse(exchange, STATUS_INVALID_REQUEST, fault);
    else if (known)
        refuse(exchange, STATUS_ALREADY_EXISTS, "There is a key of this name.");
    else if (make_key(work))
        record(work, "operator.key_added");
    principal_unref(known);
}

/* Whether the key is there, as far as this node knows: a change of one that is not is no act. */
static bool check_key(struct key_work *work) {
    struct exchange *exchange = work->revoke.exchange;
    if (!take_name(work))
        return false;
    const struct principal *known =
        operator_keys_named(exchange->http->operator_keys, name_of(work));
    if (!known) {
        refuse(exchange, STATUS_NOT_FOUND, "There is no key of this name.");
        return false;
    }
    work->key_id = arena_copy(&work->memory, known->token_id);
    principal_unref(known);
    if (!work->key_id.data)
        exchange_answer_status(exchange, STATUS_OUT_OF_MEMORY);
    return work->key_id.data != NULL;
}

void handle_key_rotate(struct exchange *exchange) {
    struct key_work *work = revoke_is_possible(exchange) ? work_new(exchange, rotate) : NULL;
    if (!work)
        return;
    revoke_begin(&work->revoke, exchange);
    const char *fault = key_request_read_rotation(buffer_slice(&exchange->body), &work->request);
    if (fault)
        refuse(exchange, STATUS_INVALID_REQUEST, fault);
    else if (check_key(work) && make_key(work))
        record(work, "operator.key_rotated");
}

void handle_key_remove(struct exchange *exchange) {
    struct key_work *work = revoke_is_possible(exchange) ? work_new(exchange, remove_key) : NULL;
    if (!work)
        return;
    revoke_begin(&work->revoke, exchange);
    if (check_key(work))
        record(work, "operator.key_removed");
}
