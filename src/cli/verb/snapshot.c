/* Prints the snapshot of a topic while it arrives: unchanged with --json, else its properties and
 * then one document a line. */
#include <stdio.h>
#include <string.h>

#include "cli/cli.h"
#include "cli/token_client.h"
#include "wire/json.h"

#define TARGET_BYTES_MAX 4096
#define PIECE_BYTES_MAX  (256u << 20)
#define HEAD_BYTES_MAX   (64u << 10)
#define DOCUMENTS        "\"documents\":["

enum print_state { PRINT_HEAD, PRINT_DOCUMENT, PRINT_SEPARATOR, PRINT_END };

struct printing {
    struct remote *remote;
    bool passes;
    enum print_state state;
    struct buffer text; /* bytes not yet printed */
    struct json_scan scan;
};

static const struct json_limits limits = {PIECE_BYTES_MAX, JSON_DEPTH_MAX};

static void print_value(struct json_value value) {
    struct slice text = value.raw;
    (void)json_string_slice(value, &text);
    printf("%.*s", (int)text.size, text.data);
}

/* Everything before the documents, closed so that it is an object of its own. */
static enum status print_head(struct printing *printing, size_t *used) {
    struct slice text = buffer_slice(&printing->text);
    const char *documents = memmem(text.data, text.size, DOCUMENTS, strlen(DOCUMENTS));
    struct json_value object, name, value;
    struct buffer head;
    if (!documents)
        return text.size > HEAD_BYTES_MAX ? STATUS_INVALID_JSON : STATUS_OK;
    *used = (size_t)(documents - text.data) + strlen(DOCUMENTS);
    buffer_init(&head, HEAD_BYTES_MAX);
    enum status status = buffer_append(&head, text.data, *used);
    if (status == STATUS_OK)
        status = buffer_append_slice(&head, SLICE("]}"));
    if (status == STATUS_OK)
        status = json_parse(buffer_slice(&head), &limits, &object);
    if (status == STATUS_OK && object.kind != JSON_KIND_OBJECT)
        status = STATUS_INVALID_JSON;
    if (status == STATUS_OK) {
        struct json_iterator members = json_iterate(object);
        while (json_next_member(&members, &name, &value) && value.kind != JSON_KIND_ARRAY) {
            print_value(name);
            putchar('\t');
            print_value(value);
            putchar('\n');
        }
        printing->state = PRINT_DOCUMENT;
    }
    buffer_release(&head);
    return status;
}

static enum status print_document(struct json_value document) {
    struct json_field fields[] = {
        {.name = SLICE("doc_key")}, {.name = SLICE("doc_version")}, {.name = SLICE("payload")}};
    if (document.kind != JSON_KIND_OBJECT || json_read_members(document, fields, 3) != STATUS_OK)
        return STATUS_INVALID_JSON;
    for (size_t i = 0; i < 3; i++) {
        print_value(fields[i].value);
        putchar(i < 2 ? '\t' : '\n');
    }
    return STATUS_OK;
}

/* One document, one separator, or nothing when it has not all arrived. */
static enum status print_next(struct printing *printing, struct slice rest, size_t *used) {
    struct json_value document;
    if (printing->state == PRINT_HEAD)
        return print_head(printing, used);
    if (rest.size == 0 || printing->state == PRINT_END) {
        *used = rest.size;
        return STATUS_OK;
    }
    if (printing->state == PRINT_SEPARATOR || rest.data[0] == ']') {
        *used = 1;
        printing->state = rest.data[0] == ',' ? PRINT_DOCUMENT : PRINT_END;
        return rest.data[0] == ',' || rest.data[0] == ']' ? STATUS_OK : STATUS_INVALID_JSON;
    }
    enum status status = json_scan(&printing->scan, rest, &limits, &document, used);
    if (status != STATUS_OK || *used == 0)
        return status;
    printing->state = PRINT_SEPARATOR;
    return print_document(document);
}

static enum status print_piece(struct printing *printing, struct slice piece) {
    size_t done = 0;
    size_t used;
    enum status status = buffer_append_slice(&printing->text, piece);
    do {
        used = 0;
        if (status == STATUS_OK)
            status = print_next(printing, slice_from(buffer_slice(&printing->text), done), &used);
        done += used;
    } while (status == STATUS_OK && used > 0);
    buffer_consume(&printing->text, done);
    return status;
}

static enum status snapshot_body(void *user, unsigned http_status, struct slice piece) {
    struct printing *printing = user;
    if (http_status != 200)
        return buffer_append_slice(&printing->remote->answer, piece);
    if (!printing->passes)
        return print_piece(printing, piece);
    return fwrite(piece.data, 1, piece.size, stdout) == piece.size ? STATUS_OK
                                                                   : STATUS_SYSTEM_ERROR;
}

static int print_snapshot(struct token_client *token_client, const char *target, bool passes) {
    struct printing printing = {.remote = token_client->remote, .passes = passes};
    struct exchange_request request = {
        .method = "GET", .target = target, .user = &printing, .on_body = snapshot_body};
    unsigned http_status = 0;
    int code = EXIT_CODE_DONE;
    buffer_init(&printing.text, PIECE_BYTES_MAX);
    enum status status = token_client_exchange(token_client, &request, &http_status);
    if (status != STATUS_OK)
        code = cli_fail(EXIT_CODE_UNREACHABLE, "%s",
                        *token_client->error ? token_client->error : status_message(status));
    else if (http_status != 200)
        code = remote_refused(token_client->remote, http_status);
    else if (!passes && printing.state != PRINT_END)
        code = cli_fail(EXIT_CODE_UNREACHABLE, "the server's answer is no snapshot");
    buffer_release(&printing.text);
    return code;
}

static enum status snapshot_target(const struct token_client *token_client, const char *topic,
                                   struct buffer *target) {
    enum status status = buffer_append_slice(target, SLICE("/v1/topics/"));
    if (status == STATUS_OK)
        status = remote_encode(target, topic);
    if (status == STATUS_OK)
        status = buffer_append_slice(target, SLICE("/snapshot"));
    if (status == STATUS_OK)
        status = token_client_append_versions(token_client, target);
    return status == STATUS_OK ? buffer_append_byte(target, '\0') : status;
}

static int snapshot_run(struct token_client *token_client, const char *topic, bool json) {
    struct buffer target;
    buffer_init(&target, TARGET_BYTES_MAX);
    enum status status = snapshot_target(token_client, topic, &target);
    int code = status == STATUS_OK ? print_snapshot(token_client, target.data, json)
                                   : cli_fail(EXIT_CODE_USAGE, "%s", status_message(status));
    buffer_release(&target);
    return code;
}

int cli_snapshot(int argc, char **argv) {
    struct remote_options options = {.is_client = true};
    struct token_client_options token_options = {.operator_url = NULL};
    bool json = false;
    const struct cli_option table[] = {{"--url", NULL, &options.url},
                                       {"--key", NULL, &options.key},
                                       {"--data-dir", NULL, &options.data_dir},
                                       {"--ca", NULL, &options.ca_file},
                                       {"--operator-url", NULL, &token_options.operator_url},
                                       {"--client-build-id", NULL, &token_options.client_build_id},
                                       {"--json", &json, NULL}};
    struct remote remote;
    struct token_client token_client;
    if (!cli_options(&argc, argv, table, sizeof(table) / sizeof(table[0])))
        return EXIT_CODE_USAGE;
    if (argc != 1)
        return cli_usage("snapshot", "give one topic, not %d", argc);
    int code = remote_open(&remote, &options);
    if (code == EXIT_CODE_DONE) {
        code = token_client_open(&token_client, &remote, &options, &token_options);
        if (code == EXIT_CODE_DONE)
            code = snapshot_run(&token_client, argv[0], json);
        token_client_close(&token_client);
    }
    remote_close(&remote);
    return code;
}
