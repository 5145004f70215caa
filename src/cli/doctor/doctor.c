#include <stdarg.h>
#include <stdio.h>
#include <unistd.h>

#include "auth/keys.h"
#include "base/utf8.h"
#include "cli/doctor/doctor.h"
#include "server/topics.h"
#include "server/unknown.h"
#include "wire/json.h"

static void say_unknown(void *user, const char *name, const char *nearest) {
    char advice[256] = "remove it";
    if (nearest)
        snprintf(advice, sizeof(advice), "set %s instead", nearest);
    doctor_say(user, FINDING_WARNING, advice, "%s is no setting and has no effect", name);
}

void doctor_check_settings(struct doctor *doctor) {
    const struct config *config = &doctor->config;
    uint64_t before = doctor->finding_count;
    config_unknown_each(environ, doctor, say_unknown);
    if (config->poll_default_limit > config->poll_max_limit)
        doctor_say(doctor, FINDING_WARNING, "raise RUNTIME_KHALA_POLL_MAX_LIMIT or lower the other",
                   "RUNTIME_KHALA_POLL_DEFAULT_LIMIT is above RUNTIME_KHALA_POLL_MAX_LIMIT, which "
                   "caps it");
    if (doctor->finding_count == before)
        doctor_say(doctor, FINDING_OK, NULL, "every value is valid");
}

void doctor_check_topics(struct doctor *doctor) {
    struct config *config = &doctor->config;
    struct topics topics;
    struct topics_message message = {""};
    if (!*config->topics_file)
        return;
    if (topics_open(&topics, &config->policies, config->topics_file, &message) != STATUS_OK) {
        doctor_say(doctor, FINDING_WRONG,
                   "correct the line; a running server keeps the rules of before until SIGHUP",
                   "KHALA_TOPICS_FILE: %s", message.text);
        return;
    }
    policy_rules_hash(&config->policies, doctor->topics_hash);
    doctor_say(doctor, FINDING_OK, NULL, "the topics file %s can be used, hash %.12s",
               config->topics_file, doctor->topics_hash);
    topics_close(&topics);
}

/* Keys of the folder are read but never created: doctor changes nothing. */
void doctor_check_keys(struct doctor *doctor) {
    const struct config *config = &doctor->config;
    const struct keys_options options = {config->jwks_file, config->token_signing_key,
                                         config->data_dir, config->token_fallback_signing_keys};
    bool is_given = *config->jwks_file || *config->token_signing_key;
    char path[KEYS_PATH_MAX];
    struct key_message message = {""};
    struct keys *keys = NULL;
    snprintf(path, sizeof(path), "%s/" KEYS_FILE, config->data_dir);
    if (!is_given && access(path, F_OK) != 0) {
        doctor_say(doctor, FINDING_OK, NULL, "none yet: 'khala serve' makes one");
        return;
    }
    if (keys_open(&keys, &options, &message) != STATUS_OK) {
        doctor_say(doctor, FINDING_WRONG,
                   is_given ? "set RUNTIME_SYNC_JWKS_FILE to a JWKS that the server can read"
                            : "put the file back, or remove it: a new key is made at the next "
                              "start, and tokens of the old one end",
                   "%s", message.text);
        return;
    }
    struct key_set *set = keys_current(keys);
    const struct key *short_key = NULL;
    for (size_t i = 0; i < key_set_refusals(set); i++)
        doctor_say(doctor, FINDING_WARNING,
                   "replace it in the file; tokens that it signed are refused",
                   "the key '%s' is not used: %s", set->refused[i].id, set->refused[i].reason);
    for (size_t i = 0; i < set->count && !short_key; i++)
        short_key = key_is_short(&set->keys[i]) ? &set->keys[i] : NULL;
    if (short_key)
        doctor_say(doctor, FINDING_WARNING,
                   "use one of 32 random bytes or more: 'openssl rand -base64 32'",
                   "the secret '%s' is short enough to be guessed from a token", short_key->id);
    else
        doctor_say(doctor, FINDING_OK, NULL, "%zu that tokens are checked with", set->count);
    key_set_unref(set);
    keys_close(keys);
}

#define TEXT_BYTES_MAX 4096
#define JSON_BYTES_MAX 32768

/* As a JSON string, also for a path that is not UTF-8. */
static void write_text(struct buffer *out, const char *text) {
    char shown[TEXT_BYTES_MAX];
    if (utf8_valid(slice_of(text))) {
        json_write_string(out, slice_of(text));
        return;
    }
    snprintf(shown, sizeof(shown), "%s", text);
    for (char *c = shown; *c; c++)
        *c = (unsigned char)*c < 0x80 ? *c : '?';
    json_write_string(out, slice_of(shown));
}

void doctor_say(struct doctor *doctor, enum finding finding, const char *advice, const char *format,
                ...) {
    static const char *const names[] = {"ok", "warning", "wrong"};
    char text[TEXT_BYTES_MAX];
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(text, sizeof(text), format, arguments);
    va_end(arguments);
    if (doctor->json) {
        struct buffer out;
        buffer_init(&out, JSON_BYTES_MAX);
        write_text(&out, text);
        buffer_append_slice(&out, SLICE(",\"advice\":"));
        if (advice)
            write_text(&out, advice);
        else
            buffer_append_slice(&out, SLICE("null"));
        if (buffer_status(&out) == STATUS_OK)
            printf("%s\n{\"check\":\"%s\",\"finding\":\"%s\",\"message\":%.*s}",
                   doctor->finding_count ? "," : "", doctor->check, names[finding], (int)out.size,
                   out.data);
        buffer_release(&out);
    } else {
        printf("%-8s %-12s %s\n%s%s%s", names[finding], doctor->check, text,
               advice ? "                      -> " : "", advice ? advice : "", advice ? "\n" : "");
    }
    fflush(stdout);
    doctor->finding_count++;
    doctor->wrong_count += finding == FINDING_WRONG;
}

static const struct {
    const char *name;
    void (*run)(struct doctor *doctor);
} checks[] = {
    {"settings", doctor_check_settings}, {"topics", doctor_check_topics},
    {"tls", doctor_check_tls},           {"keys", doctor_check_keys},
    {"folder", doctor_check_folder},     {"server", doctor_check_server},
    {"files", doctor_check_files},       {"descriptors", doctor_check_descriptors},
    {"limits", doctor_check_limits},     {"disk", doctor_check_disk},
    {"store", doctor_check_store},
};

int cli_doctor(int argc, char **argv) {
    static struct doctor doctor = {.remote.is_client = true};
    const struct cli_option verb_options[] = {
        {"--json", &doctor.json, NULL},
        {"--url", NULL, &doctor.remote.url},
        {"--ca", NULL, &doctor.remote.ca_file},
    };
    int code = cli_settings(&argc, argv, verb_options,
                            sizeof(verb_options) / sizeof(verb_options[0]), &doctor.config);
    if (code != EXIT_CODE_DONE)
        return code;
    if (argc != 0)
        return cli_usage("doctor", "'%s' is not expected", argv[0]);
    /* The findings say what the checked modules would log. */
    log_configure(LOG_OFF, LOG_TEXT, STDERR_FILENO);
    if (doctor.json)
        printf("{\"checks\":[");
    for (size_t i = 0; i < sizeof(checks) / sizeof(checks[0]); i++) {
        doctor.check = checks[i].name;
        checks[i].run(&doctor);
    }
    if (doctor.json)
        printf("],\n\"ok\":%s}\n", doctor.wrong_count == 0 ? "true" : "false");
    return doctor.wrong_count == 0 ? EXIT_CODE_DONE : EXIT_CODE_NO;
}
