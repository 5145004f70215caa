/* GET /v1/topics/{topic}/snapshot: the documents of a summary topic at one watermark.
 *
 *   wait for the snapshot ──▶ 304, or: store pool: a page ──▶ loop: send ──sent──▶ next page …
 *
 * One page is in memory at a time, and the next one is read when it is written. So a slow client
 * costs one page, and a file that other clients share. The store pool compresses the pages. The
 * number of compressed answers is limited; further clients get the plain form. */
#include <stdlib.h>

#include "api/api.h"
#include "api/handlers.h"
#include "base/limits.h"
#include "base/sha256.h"
#include "delivery/stale.h"
#include "http/query_selection.h"
#include "http/store_read.h"
#include "wire/gzip.h"
#include "wire/http1_negotiate.h"
#include "wire/object_writer.h"

#define GZIP_LEVEL     1
#define ETAG_BYTES_MAX 128
/* Bytes of the digest that are in the tag: enough to distinguish the views of a client. */
#define VIEW_BYTES 8

struct snapshot_work {
    struct snapshot_wait wait;
    struct exchange *exchange;
    struct api *api;
    struct snapshot_view view; /* the principal is the exchange's, which lives as long */
    struct selection *selection;
    char etag[ETAG_BYTES_MAX];
    bool is_gzip; /* gzip is initialised, and counts towards SNAPSHOT_GZIPS_MAX */
    struct gzip gzip;
    struct buffer plain; /* the page before it is compressed */
    size_t part;         /* the next part */
    bool has_head;       /* the head of the object is written */
    bool has_documents;  /* a document is written: the next one needs a comma */
};

static void work_free(void *memory) {
    struct snapshot_work *work = memory;
    if (work->is_gzip) {
        gzip_release(&work->gzip);
        atomic_fetch_sub(&work->api->snapshot_gzip_count, 1);
    }
    buffer_release(&work->plain);
    snapshot_unref(work->wait.snapshot);
    selection_unref(work->selection);
    free(work);
}

/* ---- the tag and the head ----------------------------------------------------------------- */

/* Principals that see the same documents have the same view. The view is part of the tag, because
 * bodies of different views differ. */
static void etag_set(struct snapshot_work *work, bool is_gzip) {
    const struct snapshot *snapshot = work->wait.snapshot;
    const struct principal *principal = work->view.principal;
    const struct owner *identity = &principal->identity;
    const struct slice all = {NULL, 0};
    const struct selection *selection = work->selection;
    /* Without an identity for a principal that reads everything. */
    const struct slice parts[] = {
        principal->read_all ? all : identity->user_id,
        principal->read_all ? all : identity->guest_scope,
        principal->read_all ? all : identity->org_id,
        selection ? (struct slice){(const char *)&selection->where, where_size(&selection->where)}
                  : all,
    };
    char view[2 * VIEW_BYTES + 1] = "all";
    if (!principal->read_all || selection) {
        uint8_t digest[SHA256_BYTES];
        struct sha256 hash;
        sha256_init(&hash);
        for (size_t i = 0; i < sizeof(parts) / sizeof(parts[0]); i++) {
            uint64_t size = parts[i].data ? parts[i].size : UINT64_MAX;
            sha256_update(&hash, &size, sizeof(size));
            sha256_update(&hash, parts[i].data, parts[i].size);
        }
        sha256_final(&hash, digest);
        sha256_release(&hash);
        for (size_t i = 0; i < VIEW_BYTES; i++)
            snprintf(view + 2 * i, 3, "%02x", digest[i]);
    }
    snprintf(work->etag, sizeof(work->etag), "\"%s-%llu-%s%s\"", snapshot->epoch.text,
             (unsigned long long)snapshot->watermark, view, is_gzip ? "-gzip" : "");
}

/* ---- pages, on a thread of the store pool -------------------------------------------------- */

/* A page: the head of the object if it is the first one, then parts. */
static enum status append_plain(struct snapshot_work *work, struct buffer *out) {
    const struct snapshot *snapshot = work->wait.snapshot;
    enum status status = STATUS_OK;
    if (!work->has_head) {
        struct object_writer object = object_begin(out);
        object_text(&object, SLICE("topic"), snapshot->topic);
        object_text(&object, SLICE("format"), SLICE(SNAPSHOT_FORMAT));
        object_number(&object, SLICE("schema_version"), SNAPSHOT_SCHEMA_VERSION);
        object_number(&object, SLICE("cadence_seconds"),
                      snapshot->policy->snapshot_cadence_seconds);
        object_text(&object, SLICE("source_table"),
                    slice_of(document_row(snapshot->policy->snapshot_document)->source_table));
        object_text(&object, SLICE("epoch"), slice_of(snapshot->epoch.text));
        position_put(&object, SLICE("watermark"), snapshot->watermark,
                     snapshot->has_fork ? &snapshot->epoch : NULL);
        buffer_append_slice(out, SLICE(",\"documents\":["));
        work->has_head = true;
    }
    for (size_t i = 0; status == STATUS_OK && i < SNAPSHOT_PAGE_PARTS_MAX &&
                       out->size < SNAPSHOT_PAGE_BYTES && work->part < snapshot->part_count;
         i++) {
        work->part = snapshot_part_next(snapshot, work->part, &work->view);
        if (work->part == snapshot->part_count)
            break;
        size_t begin = out->size;
        size_t count = 0;
        if (work->has_documents)
            buffer_append_byte(out, ',');
        status =
            buffer_note(out, snapshot_part_read(snapshot, work->part, &work->view, out, &count));
        if (status == STATUS_OK && count == 0)
            buffer_truncate(out, begin);
        work->has_documents = work->has_documents || count > 0;
        work->part++;
    }
    if (work->part == snapshot->part_count)
        buffer_append_slice(out, SLICE("]}\n"));
    return buffer_status(out);
}

static void read_page(struct store_read *read, struct store_session *store) {
    struct snapshot_work *work = read->state;
    (void)store;
    enum status status = append_plain(work, work->is_gzip ? &work->plain : &read->out);
    bool is_last = work->part == work->wait.snapshot->part_count;
    if (status == STATUS_OK && work->is_gzip)
        status = gzip_write(&work->gzip, &read->out, buffer_slice(&work->plain), is_last);
    buffer_clear(&work->plain);
    read->has_more = !is_last;
    read->status = status;
}

/* ---- answering, on the loop --------------------------------------------------------------- */

/* The header fields of a 304 are the first ones of a 200. */
enum { HEADERS_OF_304 = 3, HEADERS_PLAIN = 4, HEADERS_GZIP = 5 };

static void headers_fill(const struct snapshot_work *work,
                         struct http1_header headers[HEADERS_GZIP]) {
    headers[0] = (struct http1_header){SLICE("ETag"), slice_of(work->etag)};
    headers[1] = (struct http1_header){SLICE("Cache-Control"), SLICE("private, no-cache")};
    headers[2] = (struct http1_header){SLICE("Vary"), SLICE("Authorization, Accept-Encoding")};
    headers[3] = (struct http1_header){SLICE("Content-Type"), SLICE("application/json")};
    headers[4] = (struct http1_header){SLICE("Content-Encoding"), SLICE("gzip")};
}

static void begin(struct exchange *exchange, const struct snapshot_work *work) {
    struct http1_header headers[HEADERS_GZIP];
    headers_fill(work, headers);
    exchange_begin_with(exchange, 200, headers, work->is_gzip ? HEADERS_GZIP : HEADERS_PLAIN);
}

static void page_answer(struct store_read *read) {
    struct exchange *exchange = read->exchange;
    if (store_read_breaks_off(read))
        return;
    if (!exchange_is_answered(exchange))
        begin(exchange, read->state);
    if (!read->has_more) {
        exchange_end(exchange, buffer_slice(&read->out));
        return;
    }
    /* Taken out of the read before it is sent, so that only the connection holds the page while the
     * client reads it. */
    struct buffer page = read->out;
    buffer_init(&read->out, page.size_max);
    bool is_sent = page.size == 0 || exchange_send(exchange, buffer_slice(&page));
    buffer_release(&page);
    if (is_sent)
        store_read_post(read);
}

static void page_sent(struct exchange *exchange) {
    store_read_post(exchange->work);
}

static const struct exchange_stream page_stream = {.sent = page_sent};

/* Compression holds memory for as long as the answer lasts. Beyond a limit answers are plain. */
static void gzip_take(struct snapshot_work *work) {
    atomic_size_t *count = &work->api->snapshot_gzip_count;
    if (!http1_accepts_gzip(work->exchange->request))
        return;
    if (atomic_fetch_add(count, 1) < SNAPSHOT_GZIPS_MAX &&
        gzip_init(&work->gzip, GZIP_LEVEL) == STATUS_OK)
        work->is_gzip = true;
    else
        atomic_fetch_sub(count, 1);
}

static void snapshot_ready(struct snapshot_wait *wait) {
    struct snapshot_work *work = container_of(wait, struct snapshot_work, wait);
    struct exchange *exchange = work->exchange;
    if (!exchange_unref(exchange))
        return;
    if (wait->status == STATUS_RATE_LIMITED) {
        exchange_answer_status(exchange, wait->status);
        return;
    }
    if (wait->status != STATUS_OK) {
        bool is_temporary = status_http(wait->status) == 503;
        struct http1_header retry = {SLICE("Retry-After"), SLICE("1")};
        struct exchange_error error = {
            .status = wait->status, .headers = &retry, .header_count = is_temporary ? 1 : 0};
        exchange_answer_error(exchange, &error);
        return;
    }
    /* The client may have the snapshot, plain or compressed. */
    for (int is_gzip = 1; is_gzip >= 0; is_gzip--) {
        etag_set(work, is_gzip);
        if (!http1_has_match(exchange->request, slice_of(work->etag)))
            continue;
        struct http1_header headers[HEADERS_GZIP];
        headers_fill(work, headers);
        exchange_answer_bare(exchange, 304, headers, HEADERS_OF_304);
        return;
    }
    gzip_take(work);
    etag_set(work, work->is_gzip);
    if (!exchange_is_head(exchange)) {
        store_read_post(exchange->work);
        return;
    }
    begin(exchange, work);
    exchange_end(exchange, (struct slice){NULL, 0});
}

void handle_snapshot(struct exchange *exchange) {
    char key[PRINCIPAL_KEY_BYTES_MAX];
    struct store_read *read = store_read_new(exchange, ENTITY_TOPIC, read_page);
    if (!read)
        return;
    enum policy_row row = policy_row_of(read->id);
    if (!policy_has_snapshot(&api_of(exchange)->policies->rows[row])) {
        exchange_answer_status(exchange, STATUS_NO_SNAPSHOT);
        return;
    }
    struct selection *selection;
    if (!query_selection(exchange, &selection))
        return;
    struct snapshot_work *work = calloc(1, sizeof(*work));
    if (!work) {
        selection_unref(selection);
        exchange_answer_status(exchange, STATUS_OUT_OF_MEMORY);
        return;
    }
    work->exchange = exchange;
    work->api = api_of(exchange);
    work->selection = selection;
    work->view = (struct snapshot_view){exchange->principal, selection};
    work->wait.done = snapshot_ready;
    buffer_init(&work->plain, SNAPSHOT_PLAIN_BYTES_MAX);
    read->state = work;
    read->state_free = work_free;
    read->answer = page_answer;
    exchange->stream = &page_stream;
    exchange_ref(exchange);
    exchange_watch_end(exchange);
    const struct store_client client = exchange_client(exchange, key);
    snapshot_wait_begin(&work->wait, api_of(exchange)->snapshot_service, exchange->loop, row,
                        &client);
}

/* ---- the snapshots of the server ---------------------------------------------------------- */

/* GET /internal/v1/khala/snapshots: the snapshots and their cost. */
void handle_snapshots(struct exchange *exchange) {
    const struct api *api = api_of(exchange);
    struct snapshots *snapshots = api->snapshot_service->snapshots;
    uint64_t now_ms = clock_mono_ms(&exchange->loop->clock);
    uint64_t rows_read = store_pool_rows_read(api->store_pool) +
                         store_pool_rows_read(api->snapshot_service->builder);
    struct snapshots_state state;
    struct buffer out;
    size_t count = 0;
    buffer_init(&out, SNAPSHOTS_ANSWER_BYTES_MAX);
    buffer_append_slice(&out, SLICE("{\"snapshots\":["));
    for (size_t i = 0; i < POLICY_ROW_COUNT; i++) {
        if (!snapshots_read_state(snapshots, (enum policy_row)i, now_ms, &state))
            continue;
        if (count++ > 0)
            buffer_append_byte(&out, ',');
        struct object_writer object = object_begin(&out);
        object_text(&object, SLICE("topic"), state.topic);
        object_json(&object, SLICE("building"), state.is_building ? SLICE("true") : SLICE("false"));
        if (state.has_current) {
            object_number(&object, SLICE("watermark"), state.watermark);
            object_number(&object, SLICE("documents"), state.document_count);
            object_number(&object, SLICE("bytes"), state.file_bytes);
            object_number(&object, SLICE("age_ms"), state.age_ms);
        }
        object_number(&object, SLICE("built"), state.built_count);
        object_number(&object, SLICE("failed"), state.failed_count);
        object_number(&object, SLICE("served"), state.served_count);
        object_close(&object);
    }
    buffer_printf(&out, "],\"bytes\":%llu,\"bytes_max\":%llu,\"store_rows_read\":%llu}\n",
                  (unsigned long long)snapshots_bytes(snapshots),
                  (unsigned long long)api->snapshots_bytes_max, (unsigned long long)rows_read);
    exchange_answer_text(exchange, STATUS_OK, &out);
    buffer_release(&out);
}
