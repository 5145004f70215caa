#include "cli/token_client.h"

#include <stdlib.h>
#include <string.h>

#include "cli/settings_file.h"
#include "topic/topic_table.h"
#include "wire/json.h"

#define PROTOCOL_VERSION "khala.ws.v1"
#define SCHEMA_VERSION   "1"
#define TOKEN_BYTES_MAX  (64u << 10)

static const char *issuer_url(const struct token_client_options *options) {
    const char *environment = settings_variable("KHALA_OPERATOR_URL");
    if (options->operator_url)
        return options->operator_url;
    return environment && *environment ? environment : NULL;
}

int token_client_open(struct token_client *client, struct remote *remote,
                      const struct remote_options *remote_options,
                      const struct token_client_options *options) {
    const char *url = issuer_url(options);
    *client = (struct token_client){
        .remote = remote,
        .issuer = remote->client,
        .client_build_id = options->client_build_id ? options->client_build_id : KHALA_BUILD_ID,
        .error = "",
        .replay_all = options->replay_all};
    buffer_init(&client->token, TOKEN_BYTES_MAX);
    if (!url)
        return EXIT_CODE_DONE;
    client->issuer = NULL;
    enum status status = exchange_open(&client->issuer, url, remote_ca_file(remote_options));
    if (status == STATUS_INVALID_REQUEST)
        return cli_fail(EXIT_CODE_USAGE, "'%s' is not http://HOST[:PORT] or https://HOST[:PORT]",
                        url);
    if (status != STATUS_OK)
        return cli_fail(EXIT_CODE_UNREACHABLE, "%s", status_message(status));
    return EXIT_CODE_DONE;
}

void token_client_close(struct token_client *client) {
    if (client->issuer && client->issuer != client->remote->client)
        exchange_close(client->issuer);
    buffer_release(&client->token);
}

enum status token_client_append_versions(const struct token_client *client, struct buffer *target) {
    bool has_query = memchr(target->data, '?', target->size) != NULL;
    enum status status = buffer_printf(target,
                                       "%cprotocol_version=" PROTOCOL_VERSION
                                       "&schema_version=" SCHEMA_VERSION "&client_build_id=",
                                       has_query ? '&' : '?');
    return status == STATUS_OK ? remote_encode(target, client->client_build_id) : status;
}

static enum status gather(void *user, unsigned http_status, struct slice piece) {
    struct token_client *client = user;
    (void)http_status;
    return buffer_append_slice(&client->remote->answer, piece);
}

static enum status take_token(struct token_client *client) {
    const struct json_limits limits = {client->remote->answer.size, 8};
    struct json_field token = {.name = SLICE("token")};
    buffer_clear(&client->token);
    enum status status =
        json_read_object(buffer_slice(&client->remote->answer), &limits, &token, 1);
    if (status == STATUS_OK && !token.present)
        status = STATUS_INVALID_JSON;
    if (status == STATUS_OK)
        status = json_string_decode(token.value, &client->token);
    if (status == STATUS_OK)
        status = buffer_append_byte(&client->token, '\0');
    if (status != STATUS_OK)
        client->error = "the server's answer holds no token";
    return status;
}

static enum status mint(struct token_client *client, int stop_fd, unsigned *http_status) {
    const struct exchange_request request = {
        .method = "POST",
        .target = "/api/sync/token",
        .key = client->remote->key,
        .content_type = "application/json",
        .body = client->replay_all
                    ? SLICE("{\"scopes\":[\"" SCOPE_READ_ALL_NAME "\",\"runtime.replay_all\"]}")
                    : SLICE("{\"scopes\":[\"" SCOPE_READ_ALL_NAME "\"]}"),
        .stop_fd = stop_fd,
        .user = client,
        .on_body = gather,
    };
    enum status status = exchange_run(client->issuer, &request, http_status);
    if (status != STATUS_OK)
        client->error = exchange_error(client->issuer);
    return status == STATUS_OK && *http_status == 200 ? take_token(client) : status;
}

enum status token_client_exchange(struct token_client *client, struct exchange_request *request,
                                  unsigned *http_status) {
    struct remote *remote = client->remote;
    client->error = "";
    buffer_clear(&remote->answer);
    enum status status = mint(client, request->stop_fd, http_status);
    if (status != STATUS_OK || *http_status != 200)
        return status;
    buffer_clear(&remote->answer);
    request->key = client->token.data;
    *http_status = 0;
    status = exchange_run(remote->client, request, http_status);
    if (status != STATUS_OK)
        client->error = exchange_error(remote->client);
    return status;
}
