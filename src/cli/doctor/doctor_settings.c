#include <stdio.h>
#include <unistd.h>

#include "auth/keys.h"
#include "cli/doctor/doctor.h"
#include "server/unknown.h"

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

static void check_set(struct doctor *doctor, struct key_set *set) {
    for (size_t i = 0; i < key_set_refusals(set); i++)
        doctor_say(doctor, FINDING_WARNING,
                   "replace it in the file; tokens that it signed are refused",
                   "the key '%s' is not used: %s", set->refused[i].id, set->refused[i].reason);
    for (size_t i = 0; i < set->count; i++) {
        const struct key *key = &set->keys[i];
        if (!key_is_short(key))
            continue;
        doctor_say(doctor, FINDING_WARNING,
                   "use one of 32 random bytes or more: 'openssl rand -base64 32'",
                   "the secret '%s' is short enough to be guessed from a token", key->id);
        return;
    }
    doctor_say(doctor, FINDING_OK, NULL, "%zu that tokens are checked with", set->count);
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
    check_set(doctor, set);
    key_set_unref(set);
    keys_close(keys);
}
