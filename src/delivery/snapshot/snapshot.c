/* The file has the documents of a part as JSON with commas between them, then a row with the owner
 * of each. A principal that may read everything gets the text unchanged. For any other the rows are
 * read first, and the text only if one of them fits; a hash of each owner in memory tells which
 * parts can be passed over. A build writes a part whenever 64 KiB are full, in one read
 * transaction. */
#include "delivery/snapshot/snapshot.h"

#include <assert.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/file.h"
#include "base/limits.h"
#include "wire/object_writer.h"

/* ---- owners in the file ---- */

#define TEXT_COUNT 3
#define ABSENT     UINT16_MAX

struct row_head {
    uint32_t document_bytes;
    uint16_t sizes[TEXT_COUNT];
    uint16_t unused; /* so that no padding is written */
};

enum status snapshot_owner_write(struct buffer *out, const struct snapshot_owner *row) {
    const struct slice texts[TEXT_COUNT] = {row->owner.user_id, row->owner.guest_scope,
                                            row->owner.org_id};
    struct row_head head = {.document_bytes = row->document_bytes};
    size_t size = sizeof(head);
    for (size_t i = 0; i < TEXT_COUNT; i++) {
        if (texts[i].size >= ABSENT)
            return STATUS_INTERNAL_ERROR;
        head.sizes[i] = texts[i].data ? (uint16_t)texts[i].size : ABSENT;
        size += texts[i].size;
    }
    /* With room for all of it the appends cannot fail, so a failure leaves no part. */
    enum status status = buffer_reserve(out, size);
    if (status != STATUS_OK)
        return status;
    buffer_append(out, &head, sizeof(head));
    for (size_t i = 0; i < TEXT_COUNT; i++)
        buffer_append_slice(out, texts[i]);
    return buffer_status(out);
}

bool snapshot_owner_read(struct slice *rows, struct snapshot_owner *row) {
    struct row_head head;
    struct slice *const texts[TEXT_COUNT] = {&row->owner.user_id, &row->owner.guest_scope,
                                             &row->owner.org_id};
    if (rows->size < sizeof(head))
        return false;
    memcpy(&head, rows->data, sizeof(head));
    *rows = slice_from(*rows, sizeof(head));
    row->document_bytes = head.document_bytes;
    for (size_t i = 0; i < TEXT_COUNT; i++) {
        bool is_absent = head.sizes[i] == ABSENT;
        size_t size = is_absent ? 0 : head.sizes[i];
        if (size > rows->size)
            return false;
        *texts[i] = (struct slice){is_absent ? NULL : rows->data, size};
        *rows = slice_from(*rows, size);
    }
    return true;
}

/* ---- snapshots ---- */

struct snapshot *snapshot_ref(struct snapshot *snapshot) {
    atomic_fetch_add_explicit(&snapshot->references, 1, memory_order_relaxed);
    return snapshot;
}

void snapshot_unref(struct snapshot *snapshot) {
    if (!snapshot)
        return;
    unsigned before = atomic_fetch_sub_explicit(&snapshot->references, 1, memory_order_acq_rel);
    assert(before > 0);
    if (before > 1)
        return;
    if (snapshot->fd >= 0)
        close(snapshot->fd);
    free(snapshot->owner_keys);
    free(snapshot->parts);
    free(snapshot);
}

/* The flag is set first: a read that finds the file empty must know why. */
void snapshot_withdraw(struct snapshot *snapshot) {
    atomic_store(&snapshot->is_withdrawn, true);
    (void)!ftruncate(snapshot->fd, 0);
}

/* Appends size bytes of the file, starting at offset. */
static enum status append_file(const struct snapshot *snapshot, uint64_t offset, size_t size,
                               struct buffer *out) {
    enum status status = buffer_reserve(out, size);
    size_t done = 0;
    if (status != STATUS_OK)
        return status;
    while (done < size) {
        ssize_t got =
            pread(snapshot->fd, out->data + out->size + done, size - done, (off_t)(offset + done));
        if (got < 0 && errno == EINTR)
            continue;
        if (got <= 0)
            return atomic_load(&snapshot->is_withdrawn) ? STATUS_SLOW_CONSUMER
                                                        : STATUS_STORE_UNAVAILABLE;
        done += (size_t)got;
    }
    out->size += size;
    return STATUS_OK;
}

/* Whether the view has a document of that text. */
static enum status has_document(const struct snapshot_view *view, const struct owner *owner,
                                struct slice text, bool *has_it) {
    static const struct json_limits limits = {SIZE_MAX, JSON_DEPTH_MAX};
    struct json_field payload = {.name = SLICE("payload")};
    *has_it = principal_may_read(view->principal, owner);
    if (!*has_it || !view->selection || !view->selection->has_where)
        return STATUS_OK;
    if (json_read_object(text, &limits, &payload, 1) != STATUS_OK || !payload.present)
        return STATUS_INTERNAL_ERROR;
    return selection_has_document(view->selection, payload.value.raw, has_it);
}

/* Copies the documents that the view has from the part's text. */
static enum status append_viewed(struct slice text, struct slice owners,
                                 const struct snapshot_view *view, struct buffer *out,
                                 size_t *count) {
    struct snapshot_owner row;
    enum status status = STATUS_OK;
    while (status == STATUS_OK && owners.size > 0) {
        bool has_it = false;
        if (!snapshot_owner_read(&owners, &row) || row.document_bytes > text.size)
            return STATUS_INTERNAL_ERROR;
        struct slice document = {text.data, row.document_bytes};
        text = slice_from(text, row.document_bytes);
        if (text.size > 0)
            text = slice_from(text, 1);
        status = has_document(view, &row.owner, document, &has_it);
        if (!has_it)
            continue;
        if ((*count)++ > 0)
            buffer_append_byte(out, ',');
        buffer_append_slice(out, document);
    }
    return status == STATUS_OK ? buffer_status(out) : status;
}

/* Whether one of the rows is of an owner that the principal may read. */
static enum status find_owned(struct slice owners, const struct principal *principal, bool *found) {
    struct snapshot_owner row;
    *found = false;
    while (!*found && owners.size > 0) {
        if (!snapshot_owner_read(&owners, &row))
            return STATUS_INTERNAL_ERROR;
        *found = principal_may_read(principal, &row.owner);
    }
    return STATUS_OK;
}

static enum status read_viewed(const struct snapshot *snapshot, const struct snapshot_part *part,
                               const struct snapshot_view *view, struct buffer *out,
                               size_t *count) {
    struct buffer text, owners;
    bool found = false;
    buffer_init(&owners, part->owners_bytes);
    buffer_init(&text, part->text_bytes);
    enum status status =
        append_file(snapshot, part->offset + part->text_bytes, part->owners_bytes, &owners);
    if (status == STATUS_OK)
        status = find_owned(buffer_slice(&owners), view->principal, &found);
    if (status == STATUS_OK && found)
        status = append_file(snapshot, part->offset, part->text_bytes, &text);
    if (status == STATUS_OK && found)
        status = append_viewed(buffer_slice(&text), buffer_slice(&owners), view, out, count);
    buffer_release(&text);
    buffer_release(&owners);
    return status;
}

static bool may_have(const struct snapshot *snapshot, const struct snapshot_part *part,
                     const uint32_t *keys, size_t key_count) {
    const uint32_t *owners = snapshot->owner_keys + part->first;
    for (size_t i = 0; i < part->count; i++)
        for (size_t key = 0; key < key_count; key++)
            if (owners[i] == keys[key])
                return true;
    return false;
}

size_t snapshot_part_next(const struct snapshot *snapshot, size_t part,
                          const struct snapshot_view *view) {
    const struct principal *principal = view->principal;
    uint32_t keys[PRINCIPAL_KEYS_MAX];
    size_t key_count = principal_keys(principal, keys);
    if (!principal->read_all)
        while (part < snapshot->part_count &&
               !may_have(snapshot, &snapshot->parts[part], keys, key_count))
            part++;
    return part;
}

enum status snapshot_part_read(const struct snapshot *snapshot, size_t index,
                               const struct snapshot_view *view, struct buffer *out,
                               size_t *count) {
    assert(index < snapshot->part_count);
    const struct snapshot_part *part = &snapshot->parts[index];
    size_t begin = out->size;
    enum status status;
    bool has_all = view->principal->read_all && !(view->selection && view->selection->has_where);
    *count = has_all ? part->count : 0;
    if (has_all)
        status = append_file(snapshot, part->offset, part->text_bytes, out);
    else
        status = read_viewed(snapshot, part, view, out, count);
    if (status != STATUS_OK) {
        buffer_truncate(out, begin);
        *count = 0;
    }
    return status;
}

/* ---- building ---- */

#define FILE_NAME   "snapshot"
#define PARTS_FIRST 64
/* Of a document without its key and its payload, at most. */
#define MEMBERS_BYTES_MAX 256

/* The part being filled, and its snapshot. */
struct building {
    struct snapshot_build *build;
    struct snapshot *snapshot;
    struct buffer text;
    struct buffer owners;
    uint32_t count;
    size_t parts_capacity;
    size_t owners_capacity;
    bool is_explained; /* the reason is set */
};

static enum status explain(struct building *building, enum status status, const char *failure,
                           const char *cause) {
    if (!building->is_explained)
        snprintf(building->build->reason, sizeof(building->build->reason), "%s: %s", failure,
                 cause);
    building->is_explained = true;
    return status;
}

static enum status file_append(struct building *building, struct slice bytes) {
    struct snapshot *snapshot = building->snapshot;
    while (bytes.size > 0) {
        ssize_t written = pwrite(snapshot->fd, bytes.data, bytes.size, (off_t)snapshot->file_bytes);
        if (written < 0 && errno == EINTR)
            continue;
        if (written <= 0)
            return explain(building, STATUS_STORE_UNAVAILABLE, "cannot write the snapshot's file",
                           strerror(errno));
        bytes = slice_from(bytes, (size_t)written);
        snapshot->file_bytes += (uint64_t)written;
    }
    return STATUS_OK;
}

static enum status note_owner(struct building *building, const struct owner *owner) {
    struct snapshot *snapshot = building->snapshot;
    uint32_t keys[PRINCIPAL_KEYS_MAX] = {0};
    size_t index = snapshot->document_count + building->count;
    if (index == building->owners_capacity) {
        size_t capacity = index > 0 ? index * 2 : SNAPSHOT_PART_DOCUMENTS_MAX;
        uint32_t *owners = realloc(snapshot->owner_keys, capacity * sizeof(*owners));
        if (!owners)
            return STATUS_OUT_OF_MEMORY;
        snapshot->owner_keys = owners;
        building->owners_capacity = capacity;
    }
    (void)owner_keys(owner, keys);
    snapshot->owner_keys[index] = keys[0];
    return STATUS_OK;
}

static enum status part_end(struct building *building) {
    struct snapshot *snapshot = building->snapshot;
    struct snapshot_build *build = building->build;
    if (building->count == 0)
        return STATUS_OK;
    struct snapshot_part part = {.offset = snapshot->file_bytes,
                                 .text_bytes = (uint32_t)building->text.size,
                                 .owners_bytes = (uint32_t)building->owners.size,
                                 .count = building->count,
                                 .first = snapshot->document_count};
    if (snapshot->part_count == building->parts_capacity) {
        size_t capacity = building->parts_capacity > 0 ? building->parts_capacity * 2 : PARTS_FIRST;
        struct snapshot_part *parts = realloc(snapshot->parts, capacity * sizeof(*parts));
        if (!parts)
            return STATUS_OUT_OF_MEMORY;
        snapshot->parts = parts;
        building->parts_capacity = capacity;
    }
    enum status status = build->reserve(build->user, (uint64_t)part.text_bytes + part.owners_bytes);
    if (status == STATUS_OK)
        status = file_append(building, buffer_slice(&building->text));
    if (status == STATUS_OK)
        status = file_append(building, buffer_slice(&building->owners));
    if (status != STATUS_OK)
        return status;
    snapshot->parts[snapshot->part_count++] = part;
    snapshot->document_count += part.count;
    buffer_clear(&building->text);
    buffer_clear(&building->owners);
    building->count = 0;
    return STATUS_OK;
}

static enum status each_document(void *user, const struct store_document *document) {
    struct building *building = user;
    struct snapshot_build *build = building->build;
    bool is_absent = !document->payload.data &&
                     (!build->finds_missing || document->entity_ref <= build->absent_ref);
    if (!is_absent && !store_document_is_whole(document))
        build->damaged_refs[build->damaged_count++] = document->entity_ref;
    /* After the first damage the build only looks for more. */
    if (is_absent || build->damaged_count > 0)
        return build->damaged_count == SNAPSHOT_DAMAGES_MAX ? STATUS_LIMIT_REACHED : STATUS_OK;
    size_t bytes = document->payload.size + document->key.size + MEMBERS_BYTES_MAX;
    enum status status = STATUS_OK;
    if (building->count == SNAPSHOT_PART_DOCUMENTS_MAX ||
        building->text.size + bytes > SNAPSHOT_PART_BYTES)
        status = part_end(building);
    if (status == STATUS_OK && building->count > 0)
        status = buffer_append_byte(&building->text, ',');
    size_t begin = building->text.size;
    if (status == STATUS_OK) {
        struct object_writer object = object_begin(&building->text);
        object_text(&object, SLICE("doc_key"), document->key);
        object_number(&object, SLICE("doc_version"), document->version);
        object_json(&object, SLICE("payload"), document->payload);
        object_hash(&object, SLICE("payload_hash"), document->payload_hash);
        status = object_end(&object);
    }
    struct snapshot_owner row = {(uint32_t)(building->text.size - begin), document->owner};
    if (status == STATUS_OK)
        status = snapshot_owner_write(&building->owners, &row);
    if (status == STATUS_OK)
        status = note_owner(building, &document->owner);
    building->count++;
    return status;
}

/* The watermark is reported first, so that the journal after it is kept during the build. */
static enum status read_all(struct building *building, struct store_session *session) {
    struct snapshot *snapshot = building->snapshot;
    struct snapshot_build *build = building->build;
    struct arena arena;
    struct store_topic topic;
    struct store_state state;
    arena_init(&arena, SNAPSHOT_BUILD_ARENA_BYTES_MAX);
    enum status status = store_read_state(session, &state);
    if (status == STATUS_OK)
        status = store_load_topic(session, snapshot->topic, &arena, &topic);
    if (status == STATUS_OK) {
        snapshot->epoch = topic_epoch_of(&state, &topic);
        snapshot->has_fork = state.has_fork;
        snapshot->watermark = topic.head_seq;
        build->began(build->user, snapshot->watermark);
        status = store_walk_documents(session, build->policy->snapshot_document, 0, UINT64_MAX,
                                      building, each_document);
    }
    arena_release(&arena);
    if (build->damaged_count > 0 && (status == STATUS_OK || status == STATUS_LIMIT_REACHED))
        return explain(building, STATUS_STORE_UNAVAILABLE, "given up",
                       "documents are missing or altered");
    return status == STATUS_OK ? part_end(building) : status;
}

static enum status build_in(struct building *building, struct store_session *session) {
    struct snapshot *snapshot = building->snapshot;
    snapshot->fd = file_open_unnamed(building->build->folder, FILE_NAME);
    if (snapshot->fd < 0)
        return explain(building, STATUS_STORE_UNAVAILABLE, "cannot make the snapshot's file",
                       strerror(errno));
    enum status status = store_read_begin(session);
    if (status == STATUS_OK) {
        status = read_all(building, session);
        store_read_end(session);
    }
    /* Every store has the topics of the table. */
    if (status == STATUS_NOT_FOUND)
        return explain(building, STATUS_INTERNAL_ERROR, "the store is damaged", "no such topic");
    if (status == STATUS_STORE_UNAVAILABLE || status == STATUS_INTERNAL_ERROR)
        return explain(building, status, "cannot read the store", store_session_error(session));
    return status == STATUS_OK ? STATUS_OK
                               : explain(building, status, "given up", status_message(status));
}

enum status snapshot_build(struct snapshot_build *build, struct store_session *session,
                           struct snapshot **made) {
    assert(policy_has_snapshot(build->policy));
    struct building building = {.build = build};
    struct snapshot *snapshot = calloc(1, sizeof(*snapshot));
    build->reason[0] = '\0';
    build->damaged_count = 0;
    if (!snapshot)
        return explain(&building, STATUS_OUT_OF_MEMORY, "given up", "no memory");
    snapshot->topic = policy_snapshot_topic(build->policy);
    snapshot->policy = build->policy;
    snapshot->fd = -1;
    atomic_init(&snapshot->references, 1);
    building.snapshot = snapshot;
    buffer_init(&building.text, SNAPSHOT_TEXT_BYTES_MAX);
    buffer_init(&building.owners, SNAPSHOT_OWNERS_BYTES_MAX);
    enum status status = build_in(&building, session);
    buffer_release(&building.text);
    buffer_release(&building.owners);
    if (status == STATUS_OK)
        *made = snapshot;
    else
        snapshot_unref(snapshot);
    return status;
}
