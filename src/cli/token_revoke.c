#include "cli/token_revoke.h"

#include <stdio.h>

#include "api/revoke_request.h"
#include "base/utf8.h"
#include "wire/json.h"

static enum status put_member(struct buffer *out, const char *name, const char *text,
                              bool is_list) {
    if (!text)
        return STATUS_OK;
    if (!utf8_valid(slice_of(text)))
        return STATUS_INVALID_UTF8;
    enum status status =
        buffer_printf(out, "%s\"%s\":%s", out->size > 1 ? "," : "", name, is_list ? "[" : "");
    if (status == STATUS_OK)
        status = json_write_string(out, slice_of(text));
    return status == STATUS_OK && is_list ? buffer_append_byte(out, ']') : status;
}

static enum status write_request(const struct token_revocation *options, struct buffer *out) {
    enum status status = buffer_append_byte(out, '{');
    if (status == STATUS_OK)
        status = put_member(out, "session_ids", options->session, true);
    if (status == STATUS_OK)
        status = put_member(out, "device_ids", options->device, true);
    if (status == STATUS_OK)
        status = put_member(out, "jtis", options->token_id, true);
    if (status == STATUS_OK)
        status = put_member(out, "reason", options->reason, false);
    return status == STATUS_OK ? buffer_append_byte(out, '}') : status;
}

static int print_revoked(struct slice answer, bool json) {
    const struct json_limits limits = {REVOKE_BYTES_MAX, 8};
    struct json_field fields[] = {{.name = SLICE("connections_dropped")},
                                  {.name = SLICE("requests_dropped")}};
    uint64_t connections, requests;
    if (json_read_object(answer, &limits, fields, 2) != STATUS_OK ||
        !json_u64(fields[0].value, UINT64_MAX, &connections) ||
        !json_u64(fields[1].value, UINT64_MAX, &requests))
        return cli_fail(EXIT_CODE_UNREACHABLE, "the server's answer does not say what it did");
    if (json)
        fwrite(answer.data, 1, answer.size, stdout);
    else
        printf("revoked; %llu connections and %llu requests dropped\n",
               (unsigned long long)connections, (unsigned long long)requests);
    return EXIT_CODE_DONE;
}

static int revoke(const struct token_revocation *options, struct slice request) {
    struct remote remote;
    unsigned http_status = 0;
    int code = remote_open(&remote, &options->remote);
    if (code == EXIT_CODE_DONE)
        code = remote_ask(&remote, "/internal/v1/sync/sessions/revoke", request, &http_status);
    if (code == EXIT_CODE_DONE)
        code = http_status == 200 ? print_revoked(buffer_slice(&remote.answer), options->json)
                                  : remote_refused(&remote, http_status);
    remote_close(&remote);
    return code;
}

int token_revoke(const struct token_revocation *options) {
    struct buffer request;
    if (!options->session && !options->device && !options->token_id)
        return cli_usage("token", "revoke needs --session, --device or --jti");
    buffer_init(&request, REVOKE_BYTES_MAX);
    enum status status = write_request(options, &request);
    int code = status == STATUS_OK ? revoke(options, buffer_slice(&request))
                                   : cli_fail(EXIT_CODE_USAGE, "%s", status_message(status));
    buffer_release(&request);
    return code;
}
