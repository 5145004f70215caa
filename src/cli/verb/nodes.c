#include <inttypes.h>
#include <stdio.h>

#include "base/visible.h"
#include "cli/cli.h"
#include "cli/remote.h"
#include "wire/json.h"

#define ANSWER_BYTES_MAX (1u << 20)
#define CELL_BYTES_MAX   512

struct cell {
    char text[CELL_BYTES_MAX];
};

/* Escaped as in the log: another node chose the text, and it may hold terminal commands. */
static bool read_cell(struct json_value value, struct cell *cell) {
    struct slice text;
    size_t size = 0;
    if (!json_string_slice(value, &text))
        return false;
    while (text.size > 0) {
        struct visible next = visible_next(text, VISIBLE_TEXT);
        if (size + next.size >= sizeof(cell->text))
            break;
        memcpy(cell->text + size, next.bytes, next.size);
        size += next.size;
        text = slice_from(text, next.consumed);
    }
    cell->text[size] = '\0';
    return true;
}

/* One line a node. The star marks the node that answered. */
static bool print_nodes(struct json_value list) {
    enum { ID, ADDRESS, ROLE, STATUS, IS_SELF, VERSION, TERM, LOG_ID, AGE, TOPICS, FIELD_COUNT };
    struct json_iterator nodes = json_iterate(list);
    struct json_value node;
    size_t count = 0;
    for (; json_next_element(&nodes, &node); count++) {
        struct json_field fields[] = {
            [ID] = {.name = SLICE("node_id")},      [ADDRESS] = {.name = SLICE("address")},
            [ROLE] = {.name = SLICE("role")},       [STATUS] = {.name = SLICE("status")},
            [IS_SELF] = {.name = SLICE("is_self")}, [VERSION] = {.name = SLICE("version")},
            [TERM] = {.name = SLICE("term")},       [LOG_ID] = {.name = SLICE("log_id")},
            [AGE] = {.name = SLICE("seen_ms_ago")}, [TOPICS] = {.name = SLICE("topics_hash")},
        };
        struct cell id, address, role, status, version, topics = {"?"};
        uint64_t term, log_id, age_ms;
        if (node.kind != JSON_KIND_OBJECT ||
            json_read_members(node, fields, FIELD_COUNT) != STATUS_OK ||
            !read_cell(fields[ID].value, &id) || !read_cell(fields[ADDRESS].value, &address) ||
            !read_cell(fields[ROLE].value, &role) || !read_cell(fields[STATUS].value, &status) ||
            !read_cell(fields[VERSION].value, &version) ||
            (fields[TOPICS].present && !read_cell(fields[TOPICS].value, &topics)) ||
            !json_u64(fields[TERM].value, JSON_INTEGER_MAX, &term) ||
            !json_u64(fields[LOG_ID].value, JSON_INTEGER_MAX, &log_id) ||
            !json_u64(fields[AGE].value, JSON_INTEGER_MAX, &age_ms))
            return false;
        bool is_self = slice_equal(fields[IS_SELF].value.raw, SLICE("true"));
        printf("%c %-16s  %-8s  %-4s  %-21s  term=%" PRIu64 "  log_id=%" PRIu64
               "  seen_ms_ago=%" PRIu64 "  version=%s  topics=%.12s\n",
               is_self ? '*' : ' ', id.text, role.text, status.text, address.text, term, log_id,
               age_ms, version.text, *topics.text ? topics.text : "none");
    }
    if (count == 0)
        printf("the store is not shared: the server is its only node\n");
    return true;
}

int cli_nodes(int argc, char **argv) {
    const struct json_limits limits = {ANSWER_BYTES_MAX, JSON_DEPTH_MAX};
    struct remote_options options = {.url = NULL};
    bool json = false;
    const struct cli_option table[] = {REMOTE_OPTION_ROWS(options), {"--json", &json, NULL}};
    struct json_field list = {.name = SLICE("nodes")};
    struct remote remote;
    if (!cli_options(&argc, argv, table, sizeof(table) / sizeof(table[0])))
        return EXIT_CODE_USAGE;
    if (argc != 0)
        return cli_usage("nodes", "'%s' is not expected", argv[0]);
    int code = remote_query(&remote, &options, "/internal/v1/nodes", (struct slice){NULL, 0});
    struct slice answer = buffer_slice(&remote.answer);
    if (code == EXIT_CODE_DONE && (json_read_object(answer, &limits, &list, 1) != STATUS_OK ||
                                   list.value.kind != JSON_KIND_ARRAY))
        code = cli_fail(EXIT_CODE_UNREACHABLE, "the server's answer is not a list of nodes");
    else if (code == EXIT_CODE_DONE && json)
        printf("%.*s", (int)answer.size, answer.data);
    else if (code == EXIT_CODE_DONE && !print_nodes(list.value))
        code = cli_fail(EXIT_CODE_UNREACHABLE, "the server's answer is not understood");
    remote_close(&remote);
    return code;
}
