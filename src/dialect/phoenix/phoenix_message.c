#include "dialect/phoenix/phoenix_message.h"

#include <assert.h>
#include <inttypes.h>
#include <openssl/evp.h>

#include "base/decimal.h"
#include "base/limits.h"
#include "delivery/session/session.h"
#include "delivery/session/session_close.h"
#include "dialect/websocket.h"
#include "wire/json.h"
#include "wire/object_writer.h"
#include "wire/phoenix.h"
#include "wire/put.h"
#include "wire/websocket/ws_frame.h"

/* ---- pages ---- */

/* The members of this dialect and the braces, with a number. */
#define OWN_BYTES_MAX 80

/* ---- sync:update_batch ---- */

static void begin_batch(const struct phoenix_range *range, struct buffer *out) {
    buffer_append_slice(out, SLICE("{\"topic\":"));
    json_write_string(out, range->topic);
    buffer_printf(out, ",\"after\":%" PRIu64 ",\"through\":%" PRIu64 ",\"updates\":[", range->after,
                  range->through);
}

/* A lean batch names its topic only once. Its end is the head unless it says where that is. */
static enum status end_batch(const struct phoenix_range *range, enum frame_form form,
                             struct buffer *out) {
    bool is_complete = range->through >= range->head;
    buffer_printf(out, "],\"epoch\":\"%s\",\"replay_complete\":%s", range->epoch,
                  is_complete ? "true" : "false");
    if (form == FRAME_LEAN && !is_complete)
        buffer_printf(out, ",\"head_watermark\":%" PRIu64, range->head);
    if (form == FRAME_LEAN)
        return buffer_append_byte(out, '}');
    buffer_append_slice(out, SLICE(",\"head_watermarks\":[{\"topic\":"));
    json_write_string(out, range->topic);
    return buffer_printf(out, ",\"watermark\":%" PRIu64 "}]}", range->head);
}

enum status phoenix_empty_batch(const struct phoenix_range *range, enum frame_form form,
                                struct buffer *out) {
    begin_batch(range, out);
    return end_batch(range, form, out);
}

/* Makes a message of the push in out behind begin + gap. */
static enum status end_push(struct delivery_loop *delivery, struct buffer *out, size_t begin,
                            size_t gap, bool compress) {
    buffer_note(out, phoenix_push_end(out));
    enum status status = buffer_end(out, begin);
    return status == STATUS_OK ? websocket_wrap(delivery, out, begin, gap, compress) : status;
}

static enum status put_batch(const struct page *page, struct delivery_loop *delivery,
                             enum phoenix_updates updates, bool compress, struct buffer *out) {
    static const char zeros[WS_HEADER_BYTES_MAX];
    const struct delivery_batch *batch = &page->batch;
    enum frame_form form = updates == PHOENIX_UPDATES_LEAN ? FRAME_LEAN : FRAME_FULL;
    size_t count = updates == PHOENIX_UPDATES_NONE ? 0 : batch->count;
    const struct phoenix_range range = {page->topic, page->epoch.text, batch->after_seq,
                                        batch->through_seq, page->head_seq};
    size_t begin = out->size;
    /* Leaves room for the header of a message of that size. */
    size_t size = OWN_BYTES_MAX;
    for (size_t i = 0; i < count; i++)
        size += OWN_BYTES_MAX + batch->frames[i]->forms[form].size;
    size_t gap = ws_header_bytes(size);
    buffer_append(out, zeros, gap);
    buffer_note(out,
                phoenix_push_begin(out, PHOENIX_NULL, PHOENIX_CHANNEL, SLICE("sync:update_batch")));
    begin_batch(&range, out);
    for (size_t i = 0; i < count; i++) {
        const struct frame *frame = batch->frames[i];
        struct slice text = frame->forms[form];
        if (i > 0)
            buffer_append_byte(out, ',');
        if (buffer_note(out, buffer_reserve(out, OWN_BYTES_MAX + text.size)) != STATUS_OK)
            break;
        char *at = out->data + out->size;
        *at++ = '{';
        at = put_slice(at, text);
        if (form == FRAME_FULL) {
            at = PUT_LITERAL(at, ",\"watermark\":");
            at = decimal_write_u64(at, frame->content.seq);
            at = PUT_LITERAL(at, ",\"hydration_required\":false");
        }
        *at++ = '}';
        out->size = (size_t)(at - out->data);
    }
    end_batch(&range, form, out);
    return end_push(delivery, out, begin, gap, compress);
}

/* ---- sync:frame ---- */

/* The payload as base64, in the memory of bytes. */
static enum status write_bytes(struct slice payload, struct buffer *bytes) {
    size_t size = (payload.size + 2) / 3 * 4;
    enum status status = buffer_reserve(bytes, size + 3);
    if (status != STATUS_OK)
        return status;
    buffer_append_byte(bytes, '"');
    /* Adds a NUL, which the quote replaces. */
    EVP_EncodeBlock((unsigned char *)bytes->data + bytes->size, (const unsigned char *)payload.data,
                    (int)payload.size);
    bytes->size += size;
    return buffer_append_byte(bytes, '"');
}

/* The frames one by one, then the range they cover. */
static enum status put_frames(const struct page *page, struct delivery_loop *delivery,
                              bool compress, struct buffer *out) {
    enum status status = STATUS_OK;
    for (size_t i = 0; status == STATUS_OK && i < page->batch.count; i++) {
        const struct frame_content *content = &page->batch.frames[i]->content;
        struct buffer bytes;
        size_t begin = out->size;
        buffer_init(&bytes, PHOENIX_BATCH_BYTES_MAX);
        buffer_note(out, write_bytes(content->payload, &bytes));
        buffer_note(out,
                    phoenix_push_begin(out, PHOENIX_NULL, PHOENIX_CHANNEL, SLICE("sync:frame")));
        struct object_writer object = object_begin(out);
        object_text(&object, SLICE("topic"), page->topic);
        object_number(&object, SLICE("seq"), content->seq);
        object_text(&object, SLICE("kind"), content->kind);
        /* A frame without payload names the document that it removes. */
        if (!content->payload.data) {
            object_text(&object, SLICE("doc_key"), content->document_key);
            object_number(&object, SLICE("doc_version"), content->document_version);
        }
        if (page->batch.frames[i]->first_seq < content->seq) {
            object_json(&object, SLICE("folded"), SLICE(""));
            buffer_printf(out, "{\"from_seq\":%" PRIu64 ",\"count\":%" PRIu64 "}",
                          page->batch.frames[i]->first_seq,
                          content->seq - page->batch.frames[i]->first_seq + 1);
        }
        object_json(&object, SLICE("payload_bytes"), buffer_slice(&bytes));
        object_number(&object, SLICE("schema_version"), 1);
        object_close(&object);
        buffer_release(&bytes);
        status = end_push(delivery, out, begin, 0, compress);
    }
    return status == STATUS_OK ? put_batch(page, delivery, PHOENIX_UPDATES_NONE, compress, out)
                               : status;
}

/* ---- the table ---- */

static enum status encode(const struct page *page, const struct page_form *form, void *user,
                          struct buffer *out) {
    return form->content == PHOENIX_UPDATES_NONE
               ? put_frames(page, user, form->is_packed, out)
               : put_batch(page, user, (enum phoenix_updates)form->content, form->is_packed, out);
}

const struct page_form phoenix_forms[PHOENIX_UPDATES_COUNT][2] = {
    [PHOENIX_UPDATES_FULL] = {{PHOENIX_BATCH_BYTES_MAX, encode, PHOENIX_UPDATES_FULL, false},
                              {PHOENIX_BATCH_BYTES_MAX, encode, PHOENIX_UPDATES_FULL, true}},
    [PHOENIX_UPDATES_LEAN] = {{PHOENIX_BATCH_BYTES_MAX, encode, PHOENIX_UPDATES_LEAN, false},
                              {PHOENIX_BATCH_BYTES_MAX, encode, PHOENIX_UPDATES_LEAN, true}},
    [PHOENIX_UPDATES_NONE] = {{PHOENIX_BATCH_BYTES_MAX, encode, PHOENIX_UPDATES_NONE, false},
                              {PHOENIX_BATCH_BYTES_MAX, encode, PHOENIX_UPDATES_NONE, true}},
};

/* ---- sessions and requests ---- */

enum status phoenix_send_push(struct session *session, struct slice event, struct slice payload) {
    struct buffer text;
    buffer_init(&text, PHOENIX_PAYLOAD_BYTES_MAX + PHOENIX_ENVELOPE_BYTES_MAX);
    enum status status = phoenix_write_push(&text, PHOENIX_NULL, PHOENIX_CHANNEL, event, payload);
    if (status == STATUS_OK)
        status = websocket_send(session, buffer_slice(&text));
    buffer_release(&text);
    return status;
}

enum status phoenix_send_notice(struct session *session, struct buffer *out, const char *event,
                                struct slice payload) {
    assert(out == &session->replies);
    (void)out;
    return phoenix_send_push(session, slice_of(event), payload);
}

enum status phoenix_send_reply(struct session *session, const struct phoenix_address *to, bool ok,
                               struct slice response) {
    struct buffer text;
    buffer_init(&text, PHOENIX_REPLY_BYTES_MAX);
    enum status status = phoenix_write_reply(&text, to, ok, response);
    if (status == STATUS_OK)
        status = websocket_send(session, buffer_slice(&text));
    buffer_release(&text);
    return status;
}

enum status phoenix_send_error_body(struct session *session, const struct phoenix_address *to,
                                    enum status error, struct slice body) {
    session_log_error(session, error);
    return phoenix_send_reply(session, to, false, body);
}

enum status phoenix_send_fault(struct session *session, const struct phoenix_address *to,
                               enum status error, const char *message) {
    struct buffer body;
    buffer_init(&body, SHORT_NOTICE_BYTES_MAX);
    struct object_writer object = object_begin(&body);
    object_text(&object, SLICE("code"), slice_of(status_code(error)));
    object_text(&object, SLICE("message"), slice_of(message ? message : status_message(error)));
    enum status status = object_end(&object);
    if (status == STATUS_OK)
        status = phoenix_send_error_body(session, to, error, buffer_slice(&body));
    buffer_release(&body);
    return status;
}

enum status phoenix_send_error(struct session *session, const struct phoenix_address *to,
                               enum status error) {
    return phoenix_send_fault(session, to, error, NULL);
}

struct phoenix_address phoenix_request_address(const struct phoenix_request *request) {
    return (struct phoenix_address){
        request->has_join_ref ? (struct slice){request->join_ref, request->join_ref_size}
                              : PHOENIX_NULL,
        request->has_ref ? (struct slice){request->ref, request->ref_size} : PHOENIX_NULL,
        PHOENIX_CHANNEL};
}

void phoenix_request_init(struct phoenix_request *request, const struct session *session,
                          const struct phoenix_address *to) {
    request->principal = session->principal;
    request->has_join_ref = to->join_ref.data != NULL;
    request->has_ref = to->ref.data != NULL;
    request->join_ref_size = to->join_ref.size;
    request->ref_size = to->ref.size;
    if (request->has_join_ref)
        memcpy(request->join_ref, to->join_ref.data, to->join_ref.size);
    if (request->has_ref)
        memcpy(request->ref, to->ref.data, to->ref.size);
}

/* Without a reply the client would wait for ever, so the session ends. */
void phoenix_flush(struct session *session, enum status status) {
    if (status == STATUS_OK)
        session_flush(session);
    else
        session_end(session, STATUS_INTERNAL_ERROR);
}

void phoenix_request_refuse(struct session *session, struct phoenix_request *request,
                            enum status error, const char *message) {
    struct phoenix_address to = phoenix_request_address(request);
    enum status status = phoenix_send_fault(session, &to, error, message);
    request->call.free(&request->call);
    phoenix_flush(session, status);
}
