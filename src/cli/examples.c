#include "cli/examples.h"

#include <inttypes.h>
#include <stdio.h>

#include "api/mint.h"
#include "cli/remote.h"

#define ANSWER_BYTES_MAX (64u << 10)
#define TARGET_BYTES_MAX 1024

/* Whether this server has a key to sign tokens with. */
static bool can_mint(const struct server *server) {
    struct uuid7_generator ids;
    struct mint_reason reason;
    struct buffer answer;
    struct mint_moment moment = {.now_ms = clock_now().wall_ms};
    enum status status = uuid7_generator_init(&ids, NULL);
    if (status != STATUS_OK)
        return false;
    moment.token_id = uuid7_next(&ids, moment.now_ms);
    moment.session_id = uuid7_next(&ids, moment.now_ms);
    buffer_init(&answer, ANSWER_BYTES_MAX);
    status = mint(&server->http.gate, SLICE("{\"topics\":[\"" EXAMPLES_TOPIC "\"]}"), &moment,
                  &answer, &reason, NULL);
    buffer_release(&answer);
    return status == STATUS_OK;
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
    printf("  curl -fsS%s %s/internal/v1/topics/" EXAMPLES_TOPIC
           "/events -H \"Authorization: Bearer %s\" "
           "-d '{\"event_type\":\"said\",\"payload\":{\"text\":\"hello\"}}'\n",
           examples->trust, examples->operator_url, examples->key);
}

static void print_follow(const struct examples *examples) {
    struct buffer target;
    buffer_init(&target, TARGET_BYTES_MAX);
    enum status status = buffer_append_slice(&target, SLICE("/v1/topics/" EXAMPLES_TOPIC "/sse"));
    if (status == STATUS_OK)
        status = write_query(examples->server, &target);
    if (status == STATUS_OK)
        printf("  curl -fsSN%s '%s%.*s' -H \"Authorization: Bearer %s\"\n", examples->trust,
               examples->url, (int)target.size, target.data, examples->token);
    buffer_release(&target);
}

static void print_mint(const struct examples *examples) {
    printf("  curl -fsS%s %s/api/sync/token -H \"Authorization: Bearer %s\" "
           "-d '{\"user_id\":\"ada\",\"scopes\":[\"%s\"]}'\n",
           examples->trust, examples->operator_url, examples->key, scope_name(SCOPE_RUN_EVENTS));
}

static void print_read(const struct examples *examples) {
    printf("  curl -fsS%s %s/internal/v1/topics/" EXAMPLES_TOPIC
           "/events -H \"Authorization: Bearer %s\"\n",
           examples->trust, examples->operator_url, examples->key);
}

void examples_print(const struct examples *examples) {
    bool has_tokens = can_mint(examples->server);
    if (!has_tokens)
        printf("Tokens are made elsewhere: there is no key here to sign them with.\n\n");
    print_append(examples);
    if (has_tokens) {
        print_follow(examples);
        print_mint(examples);
    } else {
        print_read(examples);
    }
}
