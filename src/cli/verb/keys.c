#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "auth/token.h"
#include "base/clock.h"
#include "cli/cli.h"
#include "server/config.h"
#include "server/config_options.h"
#include "server/shared_keys.h"

int cli_keys(int argc, char **argv) {
    static struct config config;
    struct keys_rotation rotation = {.delay_s = SHARED_KEYS_DELAY_S};
    bool json = false;
    const struct cli_option verb_options[] = {{"--json", &json, NULL},
                                              {"--now", &rotation.ends_old, NULL}};
    char id[KEY_ID_BYTES_MAX + 1];
    struct key_place place = {.folder = config.data_dir};
    struct store_message message = {""};
    int code = cli_settings(&argc, argv, verb_options, 2, &config);
    if (code != EXIT_CODE_DONE)
        return code;
    if (argc != 1 || strcmp(argv[0], "rotate") != 0)
        return cli_usage("keys", "give rotate");
    if (*config.token_signing_key || *config.jwks_file)
        return cli_fail(EXIT_CODE_NO,
                        "the keys are settings: with RUNTIME_SYNC_TOKEN_SIGNING_KEY, move the old "
                        "secret to RUNTIME_SYNC_TOKEN_FALLBACK_SIGNING_KEYS; with "
                        "RUNTIME_SYNC_JWKS_FILE, replace the file");
    if (*config.db_url &&
        store_open(&place.store, config_store_url(&config), false, &message) != STATUS_OK)
        return cli_fail(EXIT_CODE_UNREACHABLE, "%s", message.text);
    rotation.now_s = clock_now().wall_ms / 1000;
    enum status status = shared_keys_rotate(&place, &rotation, id);
    if (place.store)
        store_close(place.store);
    if (status == STATUS_NOT_FOUND)
        return cli_fail(EXIT_CODE_NO,
                        "no signing key was generated yet; 'khala serve' makes the first one");
    if (status == STATUS_INVALID_CONFIG)
        return cli_fail(EXIT_CODE_NO, "the generated keys are damaged: %s/%s is no JWKS",
                        config.data_dir, KEYS_FILE);
    if (status != STATUS_OK)
        return cli_fail(EXIT_CODE_UNREACHABLE, "the signing keys cannot be replaced: %s",
                        status == STATUS_SYSTEM_ERROR ? strerror(errno) : status_message(status));
    uint64_t signs_from_s = rotation.now_s + (rotation.ends_old ? 0 : rotation.delay_s);
    uint64_t ends_s =
        rotation.ends_old ? rotation.now_s : signs_from_s + TOKEN_TTL_S_MAX + TOKEN_SKEW_S;
    if (json)
        printf("{\"kid\":\"%s\",\"signs_from\":%" PRIu64 ",\"old_keys_end\":%" PRIu64 "}\n", id,
               signs_from_s, ends_s);
    else if (rotation.ends_old)
        printf("%s signs as soon as every server has read it, within %d seconds; tokens of the old "
               "keys are refused from then on, and open connections stay until their token ends: "
               "'khala token revoke' ends them\n",
               id, SHARED_KEYS_RENEW_MS / 1000);
    else
        printf("%s signs in %" PRIu64 " seconds; the old keys verify for %" PRIu64
               " seconds, until their last token has ended\n",
               id, rotation.delay_s, ends_s - rotation.now_s);
    return EXIT_CODE_DONE;
}
