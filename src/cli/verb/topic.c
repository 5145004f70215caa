#include <stdio.h>
#include <string.h>

#include "cli/cli.h"
#include "cli/remote.h"
#include "server/config.h"
#include "server/topics.h"
#include "topic/policy_json.h"
#include "topic/stream_id.h"
#include "wire/json.h"
#include "wire/object_writer.h"

#define TEXT_BYTES_MAX   65536
#define TARGET_BYTES_MAX 8192

static void print_pair(struct slice topic, struct slice stream, bool json, bool map) {
    struct slice answer = map ? stream : topic;
    struct buffer text;
    if (!json) {
        printf("%.*s\n", (int)answer.size, answer.data);
        return;
    }
    buffer_init(&text, TEXT_BYTES_MAX);
    struct object_writer object = object_begin(&text);
    object_text(&object, SLICE("topic"), topic);
    object_text(&object, SLICE("stream_id"), stream);
    if (object_end(&object) == STATUS_OK)
        printf("%.*s\n", (int)text.size, text.data);
    buffer_release(&text);
}

/* By the server's store, for a name that the rule for names does not decide. */
static int map_by_store(const struct remote_options *options, const char *name, bool json,
                        bool map) {
    const struct json_limits limits = {TEXT_BYTES_MAX, JSON_DEPTH_MAX};
    struct json_field fields[] = {{.name = SLICE("topic")}, {.name = SLICE("stream_id")}};
    struct remote remote;
    struct buffer target, topic, stream;
    buffer_init(&target, TARGET_BYTES_MAX);
    buffer_append_slice(&target, SLICE("/v1/topics/"));
    remote_encode(&target, name);
    enum status status = buffer_append_byte(&target, '\0');
    if (status != STATUS_OK) {
        buffer_release(&target);
        return cli_fail(EXIT_CODE_USAGE, "%s", status_message(status));
    }
    buffer_init(&topic, STREAM_ID_BYTES_MAX);
    buffer_init(&stream, STREAM_ID_BYTES_MAX);
    int code = remote_query(&remote, options, target.data, (struct slice){NULL, 0});
    if (code == EXIT_CODE_DONE) {
        status = json_read_object(buffer_slice(&remote.answer), &limits, fields, 2);
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
    }
    remote_close(&remote);
    buffer_release(&topic);
    buffer_release(&stream);
    buffer_release(&target);
    return code;
}

/* ---- policy ---- */

/* A line for the rule, and one for each value. */
static bool print_policy(struct slice answer) {
    const struct json_limits limits = {TEXT_BYTES_MAX, JSON_DEPTH_MAX};
    enum { TOPIC, REASON, RULE, POLICY, MEMBER_COUNT };
    struct json_field members[] = {[TOPIC] = {.name = SLICE("topic")},
                                   [REASON] = {.name = SLICE("reason")},
                                   [RULE] = {.name = SLICE("rule")},
                                   [POLICY] = {.name = SLICE("policy")}};
    struct json_field values[TOPIC_RULE_KEY_COUNT];
    struct json_field pattern = {.name = SLICE("pattern")};
    if (json_read_object(answer, &limits, members, MEMBER_COUNT) != STATUS_OK ||
        members[POLICY].value.kind != JSON_KIND_OBJECT)
        return false;
    remote_print_plain(members[TOPIC].value);
    printf(": ");
    remote_print_plain(members[REASON].value);
    if (members[RULE].value.kind == JSON_KIND_OBJECT &&
        json_read_members(members[RULE].value, &pattern, 1) == STATUS_OK) {
        printf(" Its pattern is ");
        remote_print_plain(pattern.value);
    }
    printf("\n");
    for (unsigned key = 0; key < TOPIC_RULE_KEY_COUNT; key++)
        values[key] =
            (struct json_field){.name = slice_of(topic_rule_key_name((enum topic_rule_key)key))};
    if (json_read_members(members[POLICY].value, values, TOPIC_RULE_KEY_COUNT) != STATUS_OK)
        return false;
    for (unsigned key = 0; key < TOPIC_RULE_KEY_COUNT; key++) {
        struct json_field parts[] = {{.name = SLICE("value")}, {.name = SLICE("from")}};
        if (values[key].value.kind != JSON_KIND_OBJECT ||
            json_read_members(values[key].value, parts, 2) != STATUS_OK)
            return false;
        printf("  %-24s  ", topic_rule_key_name((enum topic_rule_key)key));
        remote_print_plain(parts[0].value);
        printf("  (");
        remote_print_plain(parts[1].value);
        printf(")\n");
    }
    return true;
}

/* By the topics file and the settings of this process. */
static int explain_here(const char *data_dir, const char *name, struct buffer *answer) {
    static struct config config;
    static struct topics topics;
    struct topics_message message = {""};
    char text[TOPIC_NAME_BYTES_MAX];
    struct buffer topic = buffer_over(text, sizeof(text));
    int code = cli_settings_of(data_dir, &config);
    if (code != EXIT_CODE_DONE)
        return code;
    bool is_stream = address_kind(slice_of(name)) != ADDRESS_TOPIC;
    enum status status = is_stream ? stream_to_topic(slice_of(name), &topic)
                                   : buffer_append_slice(&topic, slice_of(name));
    if (status == STATUS_OK)
        status = topic_name_check(buffer_slice(&topic));
    if (status != STATUS_OK)
        return cli_fail(EXIT_CODE_NO, "'%s' is no topic and no stream id", name);
    if (topics_open(&topics, &config.policies, config.topics_file, &message) != STATUS_OK)
        return cli_fail(EXIT_CODE_USAGE, "KHALA_TOPICS_FILE: %s", message.text);
    status = policy_write_json(answer, &config.policies, buffer_slice(&topic));
    topics_close(&topics);
    return status == STATUS_OK ? EXIT_CODE_DONE
                               : cli_fail(EXIT_CODE_UNREACHABLE, "%s", status_message(status));
}

static int explain_policy(struct remote_options *options, const char *name, bool json) {
    struct remote remote = {.client = NULL};
    struct buffer target, here;
    buffer_init(&target, TARGET_BYTES_MAX);
    buffer_init(&here, TEXT_BYTES_MAX);
    buffer_append_slice(&target, SLICE("/internal/v1/topics/"));
    remote_encode(&target, name);
    buffer_append_slice(&target, SLICE("/policy"));
    enum status status = buffer_append_byte(&target, '\0');
    options->is_client = false;
    int code = status != STATUS_OK ? cli_fail(EXIT_CODE_USAGE, "%s", status_message(status))
               : options->url ? remote_query(&remote, options, target.data, (struct slice){NULL, 0})
                              : explain_here(options->data_dir, name, &here);
    struct slice answer = buffer_slice(options->url ? &remote.answer : &here);
    if (code == EXIT_CODE_DONE && json)
        printf("%.*s%s", (int)answer.size, answer.data, options->url ? "" : "\n");
    else if (code == EXIT_CODE_DONE && !print_policy(answer))
        code = cli_fail(EXIT_CODE_UNREACHABLE, "the server's answer is not understood");
    if (status == STATUS_OK && options->url)
        remote_close(&remote);
    buffer_release(&target);
    buffer_release(&here);
    return code;
}

int cli_topic(int argc, char **argv) {
    struct remote_options remote = {.is_client = true};
    bool json = false;
    const struct cli_option options[] = {REMOTE_OPTION_ROWS(remote), {"--json", &json, NULL}};
    struct buffer mapped;
    if (!cli_options(&argc, argv, options, sizeof(options) / sizeof(options[0])))
        return EXIT_CODE_USAGE;
    if (argc != 2)
        return cli_usage("topic", "give map, unmap or policy and one name");
    if (strcmp(argv[0], "policy") == 0)
        return explain_policy(&remote, argv[1], json);
    struct slice name = slice_of(argv[1]);
    bool map = strcmp(argv[0], "map") == 0;
    if (!map && strcmp(argv[0], "unmap") != 0)
        return cli_usage("topic", "'%s' is not map, unmap or policy", argv[0]);
    if (remote.url && map != (address_kind(name) == ADDRESS_TOPIC))
        return cli_fail(EXIT_CODE_NO, map ? "'%s' is a stream id" : "'%s' is not a stream id",
                        argv[1]);
    if (remote.url)
        return map_by_store(&remote, argv[1], json, map);
    buffer_init(&mapped, STREAM_ID_BYTES_MAX);
    enum status status = map ? topic_name_check(name) : STATUS_OK;
    if (status == STATUS_OK)
        status = map ? topic_to_stream(name, &mapped) : stream_to_topic(name, &mapped);
    int code = EXIT_CODE_DONE;
    if (status == STATUS_OK)
        print_pair(map ? name : buffer_slice(&mapped), map ? buffer_slice(&mapped) : name, json,
                   map);
    else if (status == STATUS_NOT_FOUND)
        code = cli_fail(EXIT_CODE_NO, "no topic has this stream id");
    else
        code = cli_fail(EXIT_CODE_NO, "%s: %s", status_code(status), status_message(status));
    buffer_release(&mapped);
    return code;
}
