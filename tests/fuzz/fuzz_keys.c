/* Any bytes as a key set. What is taken has keys within bounds, each found by its own id alone, and
 * none takes a signature that is not its own. */
#include "auth/key_set.h"
#include "fuzz.h"

static void check_key(const struct key_set *set, const struct key *key) {
    require(key->id[0] != '\0');
    require(key_set_find(set, slice_of(key->id)) == key);
    require((key->algorithm == KEY_HS256) == (key->hmac != NULL));
    require((key->algorithm != KEY_HS256) == (key->jwk != NULL));
    struct jws jws;
    require(jws_split(SLICE("e30.e30.AAAA"), &jws));
    require(!key_verify(key, &jws));
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    struct key_message message = {""};
    struct key_set *set = key_set_new();
    require(set != NULL);
    enum status status = key_set_add_jwks(set, (struct slice){(const char *)data, size}, &message);
    if (status == STATUS_OK) {
        require(set->count > 0 && set->count <= KEY_SET_COUNT_MAX);
        for (size_t i = 0; i < set->count; i++)
            check_key(set, &set->keys[i]);
    } else {
        require(status == STATUS_INVALID_CONFIG && message.text[0] != '\0');
    }
    key_set_unref(set);
    return 0;
}
