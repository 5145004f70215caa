/* Prints the snapshot of a topic while it arrives: unchanged with --json, else its properties and
 * then one document a line. */
#include <stdio.h>
#include <string.h>

#include "base/list.h"
#include "cli/cli.h"
#include "cli/subscriber.h"
#include "wire/json.h"

#define TARGET_BYTES_MAX 4096
#define SILENCE_MS_MAX   60000
#define PIECE_BYTES_MAX  (256u << 20)
#define HEAD_BYTES_MAX   (64u << 10)
#define DOCUMENTS        "\"documents\":["

enum print_state { PRINT_HEAD, PRINT_DOCUMENT, PRINT_SEPARATOR, PRINT_END };

struct printing {
    struct subscriber subscriber;
    struct remote remote; /* only for its answer: the body of a refusal */
    unsigned http_status;
    bool passes;
    enum print_state state;
    struct buffer text; /* bytes not yet printed */
    struct json_scan scan;
};

static const struct json_limits limits = {PIECE_BYTES_MAX, JSON_DEPTH_MAX};

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
    buffer_append(&head, text.data, *used);
    enum status status = buffer_append_slice(&head, SLICE("]}"));
    if (status == STATUS_OK)
        status = json_parse(buffer_slice(&head), &limits, &object);
    if (status == STATUS_OK && object.kind != JSON_KIND_OBJECT)
        status = STATUS_INVALID_JSON;
    if (status == STATUS_OK) {
        struct json_iterator members = json_iterate(object);
        while (json_next_member(&members, &name, &value) && value.kind != JSON_KIND_ARRAY) {
            remote_print_plain(name);
            putchar('\t');
            remote_print_plain(value);
            putchar('\n');
        }
        printing->state = PRINT_DOCUMENT;
    }
    buffer_release(&head);
    return status;
}

static struct printing *printing_of(struct subscriber *subscriber) {
    return container_of(subscriber, struct printing, subscriber);
}

static enum khala_result on_piece(void *user, unsigned http_status, struct khala_text piece) {
    struct printing *printing = printing_of(user);
    struct slice text = {piece.data, piece.size};
    if (http_status != 200)
        return buffer_append_slice(&printing->remote.answer, text) == STATUS_OK ? KHALA_OK
                                                                                : KHALA_FAILED;
    if (printing->passes)
        return fwrite(piece.data, 1, piece.size, stdout) == piece.size ? KHALA_OK : KHALA_FAILED;
    /* The head, then by turns a document and a separator, as far as they have arrived. */
    enum status status = buffer_append_slice(&printing->text, text);
    size_t done = 0;
    for (size_t used = 1; status == STATUS_OK && used > 0; done += used) {
        struct slice rest = slice_from(buffer_slice(&printing->text), done);
        used = 0;
        if (printing->state == PRINT_HEAD) {
            status = print_head(printing, &used);
        } else if (rest.size == 0 || printing->state == PRINT_END) {
            used = rest.size;
        } else if (printing->state == PRINT_SEPARATOR || rest.data[0] == ']') {
            used = 1;
            printing->state = rest.data[0] == ',' ? PRINT_DOCUMENT : PRINT_END;
            if (rest.data[0] != ',' && rest.data[0] != ']')
                status = STATUS_INVALID_JSON;
        } else {
            struct json_field fields[] = {{.name = SLICE("doc_key")},
                                          {.name = SLICE("doc_version")},
                                          {.name = SLICE("payload")}};
            struct json_value document;
            status = json_scan(&printing->scan, rest, &limits, &document, &used);
            if (status != STATUS_OK || used == 0)
                continue;
            printing->state = PRINT_SEPARATOR;
            if (document.kind != JSON_KIND_OBJECT ||
                json_read_members(document, fields, 3) != STATUS_OK)
                status = STATUS_INVALID_JSON;
            for (size_t i = 0; status == STATUS_OK && i < 3; i++) {
                remote_print_plain(fields[i].value);
                putchar(i < 2 ? '\t' : '\n');
            }
        }
    }
    buffer_consume(&printing->text, done);
    return status == STATUS_OK ? KHALA_OK : KHALA_FAILED;
}

static void on_answered(void *user, unsigned http_status, const struct khala_error *error) {
    printing_of(user)->http_status = http_status;
    subscriber_end(user, error);
}

int cli_snapshot(int argc, char **argv) {
    static struct printing printing;
    struct subscriber_options options = {.remote.is_client = true};
    const struct khala_options client = {.request_timeout_ms = SILENCE_MS_MAX};
    bool json = false;
    const struct cli_option table[] = {REMOTE_OPTION_ROWS(options.remote),
                                       {"--operator-url", NULL, &options.operator_url},
                                       {"--client-build-id", NULL, &options.client_build_id},
                                       {"--json", &json, NULL}};
    struct buffer target;
    if (!cli_options(&argc, argv, table, sizeof(table) / sizeof(table[0])))
        return EXIT_CODE_USAGE;
    if (argc != 1)
        return cli_usage("snapshot", "give one topic, not %d", argc);
    printing = (struct printing){.passes = json};
    buffer_init(&target, TARGET_BYTES_MAX);
    buffer_init(&printing.text, PIECE_BYTES_MAX);
    buffer_init(&printing.remote.answer, HEAD_BYTES_MAX);
    buffer_append_slice(&target, SLICE("/v1/topics/"));
    remote_encode(&target, argv[0]);
    buffer_append_slice(&target, SLICE("/snapshot?" SUBSCRIBER_VERSIONS));
    remote_encode(&target, subscriber_build_id(&options));
    enum status status = buffer_append_byte(&target, '\0');
    int code = status == STATUS_OK ? subscriber_open(&printing.subscriber, &options, &client)
                                   : cli_fail(EXIT_CODE_USAGE, "%s", status_message(status));
    if (code == EXIT_CODE_DONE) {
        const struct khala_request request = {.path = target.data,
                                              .user = &printing.subscriber,
                                              .piece = on_piece,
                                              .answered = on_answered};
        if (khala_request(printing.subscriber.client, &request, NULL) != KHALA_OK)
            subscriber_end(&printing.subscriber,
                           &(struct khala_error){.code = "",
                                                 .message = status_message(STATUS_INVALID_TOPIC),
                                                 .is_final = true});
        code = subscriber_run(&printing.subscriber);
        if (code == EXIT_CODE_DONE && printing.http_status == 0)
            code = EXIT_CODE_NO; /* a signal ended it */
        else if (code == EXIT_CODE_DONE && printing.http_status != 200)
            code = remote_refused(&printing.remote, printing.http_status);
        else if (code == EXIT_CODE_DONE && !printing.passes && printing.state != PRINT_END)
            code = cli_fail(EXIT_CODE_UNREACHABLE, "the server's answer is no snapshot");
    }
    buffer_release(&printing.remote.answer);
    buffer_release(&printing.text);
    buffer_release(&target);
    return code;
}
