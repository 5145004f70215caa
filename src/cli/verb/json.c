#include "wire/json.h"

#include <stdio.h>
#include <string.h>

#include "cli/cli.h"
#include "wire/canonical.h"

#define TEXT_BYTES_MAX ((size_t)256 << 20)

int cli_json(int argc, char **argv) {
    const struct json_limits limits = {TEXT_BYTES_MAX, JSON_DEPTH_MAX};
    struct buffer text;
    struct canonical_scratch scratch;
    struct payload_hash hash;
    struct json_value value;
    bool json = false;
    const struct cli_option options[] = {{"--json", &json, NULL}};
    if (!cli_options(&argc, argv, options, 1))
        return EXIT_CODE_USAGE;
    if (argc != 1 || (strcmp(argv[0], "canonical") != 0 && strcmp(argv[0], "hash") != 0))
        return cli_usage("json", "give canonical or hash");
    buffer_init(&text, TEXT_BYTES_MAX);
    canonical_scratch_init(&scratch, TEXT_BYTES_MAX);
    enum status status = cli_read("-", &text);
    if (status == STATUS_OK)
        status = json_parse(buffer_slice(&text), &limits, &value);
    if (status == STATUS_OK)
        status = payload_hash(value, &scratch, &hash);
    int code = EXIT_CODE_DONE;
    if (status != STATUS_OK)
        code = cli_fail(EXIT_CODE_NO, "%s: %s", status_code(status), status_message(status));
    else if (strcmp(argv[0], "hash") == 0)
        printf(json ? "{\"payload_hash\":\"%s\"}\n" : "%s\n", hash.text);
    else
        printf("%.*s\n", (int)scratch.text.size, scratch.text.data);
    buffer_release(&text);
    canonical_scratch_release(&scratch);
    return code;
}
