#include <stdio.h>
#include <string.h>

#include "cli/cli.h"
#include "cli/remote.h"
#include "topic/stream_id.h"
#include "wire/json.h"

#define TEXT_BYTES_MAX   65536
#define TARGET_BYTES_MAX 8192

static void print_pair(struct slice topic, struct slice stream, bool json, bool map) {
    struct buffer text;
    buffer_init(&text, TEXT_BYTES_MAX);
    enum status status = buffer_append_slice(&text, SLICE("{\"topic\":"));
    if (status == STATUS_OK)
        status = json_write_string(&text, topic);
    if (status == STATUS_OK)
        status = buffer_append_slice(&text, SLICE(",\"stream_id\":"));
    if (status == STATUS_OK)
        status = json_write_string(&text, stream);
    struct slice answer = map ? stream : topic;
    if (!json)
        printf("%.*s\n", (int)answer.size, answer.data);
    else if (status == STATUS_OK)
        printf("%.*s}\n", (int)text.size, text.data);
    buffer_release(&text);
}

/* ---- by the rule for names ---- */

static int map_by_rule(struct slice name, bool json, bool map) {
    struct buffer answer;
    buffer_init(&answer, STREAM_ID_BYTES_MAX);
    enum status status = map ? topic_name_check(name) : STATUS_OK;
    if (status == STATUS_OK)
        status = map ? topic_to_stream(name, &answer) : stream_to_topic(name, &answer);
    int code = EXIT_CODE_DONE;
    if (status == STATUS_OK)
        print_pair(map ? name : buffer_slice(&answer), map ? buffer_slice(&answer) : name, json,
                   map);
    else if (status == STATUS_NOT_FOUND)
        code = cli_fail(EXIT_CODE_NO, "no topic has this stream id");
    else
        code = cli_fail(EXIT_CODE_NO, "%s: %s", status_code(status), status_message(status));
    buffer_release(&answer);
    return code;
}

/* ---- by the server's store ---- */

static int print_answer(struct slice answer, bool json, bool map) {
    const struct json_limits limits = {TEXT_BYTES_MAX, JSON_DEPTH_MAX};
    struct json_field fields[] = {{.name = SLICE("topic")}, {.name = SLICE("stream_id")}};
    struct buffer topic;
    struct buffer stream;
    int code = EXIT_CODE_DONE;
    buffer_init(&topic, STREAM_ID_BYTES_MAX);
    buffer_init(&stream, STREAM_ID_BYTES_MAX);
    enum status status = json_read_object(answer, &limits, fields, 2);
    bool has_topic = fields[0].present && fields[0].value.kind == JSON_KIND_STRING;
    if (status == STATUS_OK && has_topic)
        status = json_string_decode(fields[0].value, &topic);
    if (status == STATUS_OK)
        status = json_string_decode(fields[1].value, &stream);
    if (status != STATUS_OK)
        code = cli_fail(EXIT_CODE_UNREACHABLE, "the server's answer names no topic");
    else if (has_topic)
        print_pair(buffer_slice(&topic), buffer_slice(&stream), json, map);
    else
        code = cli_fail(EXIT_CODE_NO, "no topic has this stream id yet");
    buffer_release(&topic);
    buffer_release(&stream);
    return code;
}

static int map_by_store(const struct remote_options *options, const char *name, bool json,
                        bool map) {
    struct remote remote;
    struct buffer target;
    unsigned http_status = 0;
    buffer_init(&target, TARGET_BYTES_MAX);
    enum status status = buffer_append_slice(&target, SLICE("/v1/topics/"));
    if (status == STATUS_OK)
        status = remote_encode(&target, name);
    if (status == STATUS_OK)
        status = buffer_append_byte(&target, '\0');
    if (status != STATUS_OK) {
        buffer_release(&target);
        return cli_fail(EXIT_CODE_USAGE, "%s", status_message(status));
    }
    int code = remote_open(&remote, options);
    if (code == EXIT_CODE_DONE)
        code = remote_ask(&remote, target.data, (struct slice){NULL, 0}, &http_status);
    if (code == EXIT_CODE_DONE)
        code = http_status == 200 ? print_answer(buffer_slice(&remote.answer), json, map)
                                  : remote_refused(&remote, http_status);
    remote_close(&remote);
    buffer_release(&target);
    return code;
}

int cli_topic(int argc, char **argv) {
    struct remote_options remote = {.is_client = true};
    bool json = false;
    const struct cli_option options[] = {{"--url", NULL, &remote.url},
                                         {"--ca", NULL, &remote.ca_file},
                                         {"--key", NULL, &remote.key},
                                         {"--data-dir", NULL, &remote.data_dir},
                                         {"--json", &json, NULL}};
    if (!cli_options(&argc, argv, options, sizeof(options) / sizeof(options[0])))
        return EXIT_CODE_USAGE;
    if (argc != 2)
        return cli_usage("topic", "give map or unmap and one name");
    bool map = strcmp(argv[0], "map") == 0;
    if (!map && strcmp(argv[0], "unmap") != 0)
        return cli_usage("topic", "'%s' is not map or unmap", argv[0]);
    bool is_topic = address_kind(slice_of(argv[1])) == ADDRESS_TOPIC;
    if (!remote.url)
        return map_by_rule(slice_of(argv[1]), json, map);
    if (map != is_topic)
        return cli_fail(EXIT_CODE_NO, map ? "'%s' is a stream id" : "'%s' is not a stream id",
                        argv[1]);
    return map_by_store(&remote, argv[1], json, map);
}
