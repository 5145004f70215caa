#include <stdio.h>
#include <string.h>

#include "cli/cli.h"
#include "topic/stream_id.h"
#include "wire/json.h"

#define TEXT_BYTES_MAX 65536

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

int cli_topic(int argc, char **argv) {
    bool json = false;
    const struct cli_option options[] = {{"--json", &json, NULL}};
    if (!cli_options(&argc, argv, options, 1))
        return EXIT_CODE_USAGE;
    if (argc != 2)
        return cli_usage("topic", "give map or unmap and one name");
    bool map = strcmp(argv[0], "map") == 0;
    if (!map && strcmp(argv[0], "unmap") != 0)
        return cli_usage("topic", "'%s' is not map or unmap", argv[0]);
    struct slice name = slice_of(argv[1]);
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
