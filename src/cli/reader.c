#include "cli/reader.h"

#include <stdlib.h>
#include <string.h>

#include "topic/topic_table.h"
#include "wire/json.h"

#define PROTOCOL_VERSION "khala.ws.v1"
#define SCHEMA_VERSION   "1"
#define TOKEN_BYTES_MAX  (64u << 10)

static const char *issuer_url(const struct reader_options *options) {
    const char *environment = getenv("KHALA_OPERATOR_URL");
    if (options->operator_url)
        return options->operator_url;
    return environment && *environment ? environment : NULL;
}

int reader_open(struct reader *reader, struct remote *remote,
                const struct remote_options *remote_options, const struct reader_options *options) {
    const char *url = issuer_url(options);
    *reader = (struct reader){.remote = remote,
                              .issuer = remote->client,
                              .client_build_id = options->client_build_id ? options->client_build_id
                                                                          : KHALA_BUILD_ID,
                              .error = ""};
    buffer_init(&reader->token, TOKEN_BYTES_MAX);
    if (!url)
        return EXIT_CODE_DONE;
    reader->issuer = NULL;
    enum status status = http_client_open(&reader->issuer, url);
    if (status == STATUS_INVALID_REQUEST)
        return cli_fail(EXIT_CODE_USAGE, "'%s' is not http://HOST[:PORT] or https://HOST[:PORT]",
                        url);
    if (status != STATUS_OK)
        return cli_fail(EXIT_CODE_UNREACHABLE, "%s", status_message(status));
    http_client_trust(reader->issuer, remote_ca_file(remote_options));
    return EXIT_CODE_DONE;
}

void reader_close(struct reader *reader) {
    if (reader->issuer && reader->issuer != reader->remote->client)
        http_client_close(reader->issuer);
    buffer_release(&reader->token);
}

enum status reader_versions(const struct reader *reader, struct buffer *target) {
    bool has_query = memchr(target->data, '?', target->size) != NULL;
    enum status status = buffer_printf(target,
                                       "%cprotocol_version=" PROTOCOL_VERSION
                                       "&schema_version=" SCHEMA_VERSION "&client_build_id=",
                                       has_query ? '&' : '?');
    return status == STATUS_OK ? remote_encode(target, reader->client_build_id) : status;
}

static enum status gather(void *user, unsigned http_status, struct slice piece) {
    struct reader *reader = user;
    (void)http_status;
    return buffer_append_slice(&reader->remote->answer, piece);
}

static enum status take_token(struct reader *reader) {
    const struct json_limits limits = {reader->remote->answer.size, 8};
    struct json_field token = {.name = SLICE("token")};
    buffer_clear(&reader->token);
    enum status status =
        json_read_object(buffer_slice(&reader->remote->answer), &limits, &token, 1);
    if (status == STATUS_OK && !token.present)
        status = STATUS_INVALID_JSON;
    if (status == STATUS_OK)
        status = json_string_decode(token.value, &reader->token);
    if (status == STATUS_OK)
        status = buffer_append_byte(&reader->token, '\0');
    if (status != STATUS_OK)
        reader->error = "the server's answer holds no token";
    return status;
}

static enum status mint(struct reader *reader, int stop_fd, unsigned *http_status) {
    const struct http_client_request request = {
        .method = "POST",
        .target = "/api/sync/token",
        .key = reader->remote->key.text,
        .content_type = "application/json",
        .body = SLICE("{\"scopes\":[\"" SCOPE_READ_ALL_NAME "\"]}"),
        .stop_fd = stop_fd,
        .user = reader,
        .on_body = gather,
    };
    enum status status = http_client_exchange(reader->issuer, &request, http_status);
    if (status != STATUS_OK)
        reader->error = http_client_error(reader->issuer);
    return status == STATUS_OK && *http_status == 200 ? take_token(reader) : status;
}

enum status reader_exchange(struct reader *reader, struct http_client_request *request,
                            unsigned *http_status) {
    struct remote *remote = reader->remote;
    reader->error = "";
    buffer_clear(&remote->answer);
    enum status status = mint(reader, request->stop_fd, http_status);
    if (status != STATUS_OK || *http_status != 200)
        return status;
    buffer_clear(&remote->answer);
    request->key = reader->token.data;
    *http_status = 0;
    status = http_client_exchange(remote->client, request, http_status);
    if (status != STATUS_OK)
        reader->error = http_client_error(remote->client);
    return status;
}
