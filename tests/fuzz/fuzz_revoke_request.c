/* Any bytes as a request to revoke. What is read names something, within its limits, in order of
 * kind; and written down again it is read as the same. */
#include "api/revoke.h"
#include "base/utf8.h"
#include "fuzz.h"
#include "wire/json.h"

static struct revoke_request first;
static struct revoke_request second;

static void check(const struct revoke_request *request) {
    size_t counts[REVOCATION_KIND_COUNT] = {0};
    require(request->count > 0 && request->count <= REVOKE_IDS_MAX);
    require(request->reason.size <= REVOKE_REASON_BYTES_MAX);
    for (size_t i = 0; i < request->count; i++) {
        const struct store_revocation *one = &request->revocations[i];
        require(one->id.size > 0 && one->id.size <= REVOCATION_ID_BYTES_MAX);
        require(utf8_valid(one->id));
        require(i == 0 || one->kind >= request->revocations[i - 1].kind);
        require(one->reason.data == request->reason.data);
        counts[one->kind]++;
    }
    for (size_t kind = 0; kind < REVOCATION_KIND_COUNT; kind++)
        require(counts[kind] == request->counts[kind]);
}

static void write_again(const struct revoke_request *request, struct buffer *out) {
    static const char *const names[] = {"session_ids", "device_ids", "jtis"};
    size_t at = 0;
    require(buffer_append_byte(out, '{') == STATUS_OK);
    for (size_t kind = 0; kind < REVOCATION_KIND_COUNT; kind++) {
        require(buffer_printf(out, "\"%s\":[", names[kind]) == STATUS_OK);
        for (size_t i = 0; i < request->counts[kind]; i++) {
            require(i == 0 || buffer_append_byte(out, ',') == STATUS_OK);
            require(json_write_string(out, request->revocations[at++].id) == STATUS_OK);
        }
        require(buffer_append_slice(out, SLICE("],")) == STATUS_OK);
    }
    require(buffer_append_slice(out, SLICE("\"reason\":")) == STATUS_OK);
    require((request->reason.data ? json_write_string(out, request->reason)
                                  : buffer_append_slice(out, SLICE("null"))) == STATUS_OK);
    require(buffer_append_byte(out, '}') == STATUS_OK);
}

static void read_again(void) {
    struct buffer text;
    const char *why;
    buffer_init(&text, 8 * REVOKE_BYTES_MAX);
    write_again(&first, &text);
    if (text.size <= REVOKE_BYTES_MAX) {
        require(revoke_request_read(buffer_slice(&text), &second, &why) == STATUS_OK);
        check(&second);
        require(second.count == first.count && slice_equal(second.reason, first.reason));
        for (size_t i = 0; i < first.count; i++)
            require(second.revocations[i].kind == first.revocations[i].kind &&
                    slice_equal(second.revocations[i].id, first.revocations[i].id));
        revoke_request_release(&second);
    }
    buffer_release(&text);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    const char *why;
    if (revoke_request_read((struct slice){(const char *)data, size}, &first, &why) != STATUS_OK)
        return 0;
    check(&first);
    read_again();
    revoke_request_release(&first);
    return 0;
}
