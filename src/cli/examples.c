#include "cli/examples.h"

#include <inttypes.h>
#include <stdio.h>

#include "api/mint.h"
#include "cli/remote.h"

#define TOPIC            "demo"
#define ANSWER_BYTES_MAX (64u << 10)
#define TARGET_BYTES_MAX 1024
#define SECONDS_A_MINUTE 60

/* A token for the examples' topic only, so that a copy in a log gives away little. */
static enum status mint_token(const struct server *server, uint64_t ttl_s, struct buffer *answer) {
    char request[96];
    struct uuid7_generator ids;
    const char *why;
    struct mint_moment moment = {.now_ms = clock_now().wall_ms};
    int size = snprintf(request, sizeof(request),
                        "{\"topics\":[\"" TOPIC "\"],\"ttl_seconds\":%" PRIu64 "}", ttl_s);
    enum status status = uuid7_generator_init(&ids, NULL);
    if (status != STATUS_OK)
        return status;
    moment.token_id = uuid7_next(&ids, moment.now_ms);
    moment.session_id = uuid7_next(&ids, moment.now_ms);
    return mint(&server->http.gate, (struct slice){request, (size_t)size}, &moment, answer, &why);
}

/* The versions of a client that the compatibility gate accepts. */
static enum status write_query(const struct server *server, struct buffer *target) {
    const struct config *config = &server->config;
    if (!config->compatibility_enforced)
        return STATUS_OK;
    enum status status = buffer_printf(target, "?schema_version=%" PRIu64 "&client_build_id=",
                                       config->compatibility_min_schema_version);
    if (status == STATUS_OK)
        status = remote_encode(target, config->compatibility_min_client_build_id);
    if (status == STATUS_OK)
        status = buffer_append_slice(target, SLICE("&protocol_version="));
    return status == STATUS_OK ? remote_encode(target, config->compatibility_protocol_version)
                               : status;
}

static void print_append(const struct examples *examples) {
    printf("  curl -fsS%s %s/internal/v1/topics/" TOPIC "/events -H \"Authorization: Bearer %s\" "
           "-d '{\"event_type\":\"said\",\"payload\":{\"text\":\"hello\"}}'\n",
           examples->trust, examples->operator_url, examples->key);
}

static void print_follow(const struct examples *examples, struct slice token) {
    struct buffer target;
    buffer_init(&target, TARGET_BYTES_MAX);
    enum status status = buffer_append_slice(&target, SLICE("/v1/topics/" TOPIC "/sse"));
    if (status == STATUS_OK)
        status = write_query(examples->server, &target);
    if (status == STATUS_OK)
        printf("  curl -fsSN%s '%s%.*s' -H 'Authorization: Bearer %.*s'\n", examples->trust,
               examples->url, (int)target.size, target.data, (int)token.size, token.data);
    buffer_release(&target);
}

static void print_mint(const struct examples *examples) {
    printf("  curl -fsS%s %s/api/sync/token -H \"Authorization: Bearer %s\" "
           "-d '{\"user_id\":\"ada\",\"scopes\":[\"%s\"]}'\n",
           examples->trust, examples->operator_url, examples->key, scope_name(SCOPE_RUN_EVENTS));
}

static void print_read(const struct examples *examples) {
    printf("  curl -fsS%s %s/internal/v1/topics/" TOPIC "/events -H \"Authorization: Bearer %s\"\n",
           examples->trust, examples->operator_url, examples->key);
}

void examples_print(const struct examples *examples) {
    const struct json_limits limits = {ANSWER_BYTES_MAX, 8};
    struct json_field field = {.name = SLICE("token")};
    uint64_t ttl_s = token_ttl_s_max(&examples->server->http.gate.policy);
    struct slice token = {NULL, 0};
    struct buffer answer;
    buffer_init(&answer, ANSWER_BYTES_MAX);
    if (mint_token(examples->server, ttl_s, &answer) == STATUS_OK &&
        json_read_object(buffer_slice(&answer), &limits, &field, 1) == STATUS_OK &&
        json_string_slice(field.value, &token))
        printf("A token that reads the topic " TOPIC ", for %" PRIu64 " minutes: %.*s\n\n",
               ttl_s / SECONDS_A_MINUTE, (int)token.size, token.data);
    else
        printf("Tokens are made elsewhere: there is no key here to sign them with.\n\n");
    print_append(examples);
    if (token.size > 0) {
        print_follow(examples, token);
        print_mint(examples);
    } else {
        print_read(examples);
    }
    buffer_release(&answer);
}
