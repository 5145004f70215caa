#include "auth/keys.h"

#include <jose/jwk.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/log.h"
#include "test.h"

static char folder[] = "/tmp/khala-keys-XXXXXX";
static char path[64];

static int setup(void **state) {
    (void)state;
    log_configure(LOG_OFF, LOG_TEXT, 2);
    strcpy(folder + sizeof(folder) - 7, "XXXXXX");
    if (!mkdtemp(folder))
        return -1;
    snprintf(path, sizeof(path), "%s/keys.json", folder);
    return 0;
}

static int teardown(void **state) {
    (void)state;
    char made[96];
    snprintf(made, sizeof(made), "%s/" KEYS_FILE, folder);
    unlink(path);
    unlink(made);
    return rmdir(folder);
}

static void write_file(const char *text) {
    char fresh[80];
    snprintf(fresh, sizeof(fresh), "%s.new", path);
    FILE *file = fopen(fresh, "w");
    assert_non_null(file);
    fputs(text, file);
    fclose(file);
    assert_int_equal(rename(fresh, path), 0);
}

/* A new JWK as text. The caller frees it. */
static char *jwk_text(const char *algorithm, const char *kid, bool is_public) {
    json_t *jwk = json_pack("{s:s, s:s*}", "alg", algorithm, "kid", kid);
    assert_true(jose_jwk_gen(NULL, jwk));
    if (is_public)
        assert_true(jose_jwk_pub(NULL, jwk));
    char *text = json_dumps(jwk, JSON_COMPACT);
    json_decref(jwk);
    return text;
}

static struct jws signed_by(const struct key *key, struct buffer *out) {
    struct jws jws;
    char header[64];
    snprintf(header, sizeof(header), "{\"alg\":\"%s\"}", key_algorithm_name(key->algorithm));
    assert_ok(key_sign(key, slice_of(header), SLICE("{\"a\":1}"), out));
    assert_true(jws_split(buffer_slice(out), &jws));
    return jws;
}

static void each_key_type_verifies_only_its_own_signature(void **state) {
    (void)state;
    static const char *const algorithms[] = {"HS256", "RS256", "ES256", "HS256"};
    struct key_set *set = key_set_new();
    struct key_message message;
    for (size_t i = 0; i < 4; i++) {
        char kid[8];
        snprintf(kid, sizeof(kid), "k%zu", i);
        char *text = jwk_text(algorithms[i], kid, false);
        assert_ok(key_set_add_jwks(set, slice_of(text), &message));
        free(text);
    }
    assert_int_equal(set->count, 4);
    for (size_t i = 0; i < set->count; i++) {
        struct buffer out;
        buffer_init(&out, 8192);
        struct jws jws = signed_by(&set->keys[i], &out);
        for (size_t j = 0; j < set->count; j++)
            assert_int_equal(key_verify(&set->keys[j], &jws), i == j);
        out.data[jws.header.size + 2] ^= 1;
        assert_false(key_verify(&set->keys[i], &jws));
        out.data[jws.header.size + 2] ^= 1;
        jws.signature.size--;
        assert_false(key_verify(&set->keys[i], &jws));
        buffer_release(&out);
    }
    key_set_unref(set);
}

static void a_public_key_verifies_and_does_not_sign(void **state) {
    (void)state;
    struct key_message message;
    json_t *jwk = json_pack("{s:s, s:s}", "alg", "ES256", "kid", "pair");
    assert_true(jose_jwk_gen(NULL, jwk));
    struct key_set *whole = key_set_new(), *half = key_set_new();
    char *text = json_dumps(jwk, 0);
    assert_ok(key_set_add_jwks(whole, slice_of(text), &message));
    free(text);
    assert_true(jose_jwk_pub(NULL, jwk));
    text = json_dumps(jwk, 0);
    assert_ok(key_set_add_jwks(half, slice_of(text), &message));
    free(text);
    json_decref(jwk);
    assert_null(key_set_signer(half, 0));
    struct buffer out;
    buffer_init(&out, 8192);
    struct jws jws = signed_by(key_set_signer(whole, 0), &out);
    assert_true(key_verify(key_set_find(half, SLICE("pair")), &jws));
    buffer_release(&out);
    key_set_unref(whole);
    key_set_unref(half);
}

static void keys_are_found_by_id_or_as_the_only_key(void **state) {
    (void)state;
    struct key_message message;
    struct key_set *set = key_set_new();
    assert_ok(key_set_add_secret(set, SLICE("a"), SLICE("secret of a"), &message));
    assert_non_null(key_set_find(set, (struct slice){NULL, 0}));
    assert_ok(key_set_add_secret(set, SLICE("b"), SLICE("secret of b"), &message));
    assert_null(key_set_find(set, (struct slice){NULL, 0}));
    assert_null(key_set_find(set, SLICE("")));
    assert_null(key_set_find(set, SLICE("ab")));
    assert_string_equal(key_set_find(set, SLICE("b"))->id, "b");
    assert_string_equal(key_set_signer(set, 0)->id, "a");
    assert_int_equal(key_set_add_secret(set, SLICE("a"), SLICE("again"), &message),
                     STATUS_INVALID_CONFIG);
    assert_non_null(strstr(message.text, "same id"));
    assert_int_equal(key_set_add_secret(set, SLICE("c"), SLICE(""), &message),
                     STATUS_INVALID_CONFIG);
    key_set_unref(set);
}

static void a_key_without_an_id_uses_its_thumbprint(void **state) {
    (void)state;
    struct key_message message;
    struct key_set *set = key_set_new();
    assert_ok(
        key_set_add_jwks(set, SLICE("{\"kty\":\"oct\",\"k\":\"c2VjcmV0LXNlY3JldA\"}"), &message));
    assert_int_equal(strlen(set->keys[0].id), 43);
    key_set_unref(set);
}

static void a_text_that_is_no_key_set_is_refused_with_a_reason(void **state) {
    (void)state;
    static const char off_curve[] = "{\"kty\":\"EC\",\"crv\":\"P-256\",\"kid\":\"a\","
                                    "\"x\":\"aQLwdymUabXP5V6z730PpnuNyBhLtgjW9BzWXQyg7n4\","
                                    "\"y\":\"aQLwdymUabXP5V6z730PpnuNyBhLtgjW9BzWXQyg7n4\"}";
    static const char *const bad[] = {
        "",
        "[]",
        "{",
        "null",
        "{\"keys\":[]}",
        "{\"keys\":{}}",
        "{\"keys\":[1]}",
        "{\"keys\":[{\"kty\":\"OKP\",\"crv\":\"Ed25519\",\"x\":\"AA\"}]}",
        "{\"kty\":\"oct\",\"k\":\"\"}",
        "{\"kty\":\"oct\",\"k\":\"!!\"}",
        "{\"kty\":\"oct\",\"k\":5,\"kid\":\"a\"}",
        "{\"kty\":\"oct\",\"k\":\"c2VjcmV0\",\"kid\":\"\"}",
        "{\"kty\":\"oct\",\"k\":\"c2VjcmV0\",\"kid\":5}",
        "{\"kty\":\"oct\",\"k\":\"c2VjcmV0\",\"kid\":\"a\",\"kid\":\"b\"}",
        "{\"kty\":\"oct\",\"k\":\"c2VjcmV0\",\"kid\":\"a\",\"use\":\"enc\"}",
        "{\"kty\":\"oct\",\"k\":\"c2VjcmV0\",\"kid\":\"a\",\"alg\":\"RS256\"}",
        "{\"kty\":\"oct\",\"k\":\"c2VjcmV0\",\"kid\":\"a\",\"alg\":\"none\"}",
        "{\"kty\":\"RSA\",\"n\":\"AQAB\",\"e\":\"AQAB\",\"kid\":\"small\"}",
        "{\"kty\":\"EC\",\"crv\":\"P-256\",\"x\":\"AQAB\",\"y\":\"AQAB\",\"kid\":\"a\"}",
        off_curve,
    };
    for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
        struct key_set *set = key_set_new();
        struct key_message message = {""};
        if (key_set_add_jwks(set, slice_of(bad[i]), &message) != STATUS_INVALID_CONFIG)
            fail_msg("%s", bad[i]);
        assert_true(strlen(message.text) > 10);
        assert_null(strstr(message.text, "c2VjcmV0"));
        key_set_unref(set);
    }
}

/* A sound RSA key in which one member is replaced, among other keys. */
static void an_unsound_key_is_refused_by_name_and_the_others_serve(void **state) {
    (void)state;
    static const struct {
        const char *member;
        const char *value;
        const char *reason;
    } rows[] = {
        {"e", "AQ", "'e' is 1"},
        {"e", "Ag", "'e' is even"},
        {"e", "AQAA", "'e' is even"},
        {"e", "AAEAAQ", "leading zeros"},
        {"e", "AQEBAQEBAQEB", "more than 64 bits"},
        {"e", "", "'e' is not base64url"},
        {"n", "AQAB", "fewer than 2048 bits"},
        {"n", "!", "'n' is not base64url"},
        {"kid", "sound", "same id"},
    };
    char *sound = jwk_text("RS256", "sound", true);
    char *point = jwk_text("ES256", "point", true);
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        json_t *unsound = json_loads(sound, 0, NULL);
        json_object_set_new(unsound, "kid", json_string("unsound"));
        json_object_set_new(unsound, rows[i].member, json_string(rows[i].value));
        json_t *root = json_pack("{s:[o, o, o]}", "keys", json_loads(sound, 0, NULL), unsound,
                                 json_loads(point, 0, NULL));
        char *text = json_dumps(root, 0);
        struct key_set *set = key_set_new();
        struct key_message message;
        assert_ok(key_set_add_jwks(set, slice_of(text), &message));
        assert_int_equal(set->count, 2);
        assert_int_equal(set->refused_count, 1);
        assert_string_equal(set->refused[0].id,
                            strcmp(rows[i].member, "kid") == 0 ? "sound" : "unsound");
        if (!strstr(set->refused[0].reason, rows[i].reason))
            fail_msg("%s %s: %s", rows[i].member, rows[i].value, set->refused[0].reason);
        key_set_unref(set);
        free(text);
        json_decref(root);
    }
    free(sound);
    free(point);
}

static void a_key_without_a_valid_id_is_named_by_its_position(void **state) {
    (void)state;
    struct key_set *set = key_set_new();
    struct key_message message;
    assert_ok(
        key_set_add_jwks(set,
                         SLICE("{\"keys\":[{\"kty\":\"oct\",\"k\":\"c2VjcmV0\",\"kid\":\"a\"},"
                               "{\"kty\":\"oct\",\"k\":\"c2VjcmV0\",\"kid\":5},7]}"),
                         &message));
    assert_int_equal(set->refused_count, 2);
    assert_string_equal(set->refused[0].id, "#1");
    assert_string_equal(set->refused[1].id, "#2");
    key_set_unref(set);
}

static void unsupported_keys_are_skipped(void **state) {
    (void)state;
    struct key_set *set = key_set_new();
    struct key_message message;
    assert_ok(key_set_add_jwks(
        set,
        SLICE("{\"keys\":[{\"kty\":\"OKP\",\"crv\":\"Ed25519\",\"x\":\"AA\",\"kid\":\"x\"},"
              "{\"kty\":\"oct\",\"k\":\"c2VjcmV0\",\"kid\":\"mine\",\"use\":\"sig\"}]}"),
        &message));
    assert_int_equal(set->count, 1);
    assert_string_equal(set->keys[0].id, "mine");
    key_set_unref(set);
}

static void too_many_keys_are_refused(void **state) {
    (void)state;
    struct key_set *set = key_set_new();
    struct key_message message;
    for (size_t i = 0; i < KEY_SET_COUNT_MAX; i++) {
        char id[16];
        snprintf(id, sizeof(id), "k%zu", i);
        assert_ok(key_set_add_secret(set, slice_of(id), SLICE("secret"), &message));
    }
    assert_int_equal(key_set_add_secret(set, SLICE("more"), SLICE("secret"), &message),
                     STATUS_INVALID_CONFIG);
    key_set_unref(set);
}

/* ---- sources of keys ---- */

static void a_key_is_generated_once_and_readable_only_for_its_owner(void **state) {
    (void)state;
    struct keys *keys;
    struct key_message message;
    struct stat about;
    struct buffer out;
    const struct keys_options options = {"", "", folder, ""};
    assert_ok(keys_open(&keys, &options, &message));
    assert_int_equal(keys_source(keys), KEYS_GENERATED);
    assert_int_equal(stat(keys_path(keys), &about), 0);
    assert_int_equal(about.st_mode & 0777, 0600);
    buffer_init(&out, 8192);
    struct key_set *set = keys_current(keys);
    assert_string_equal(key_set_signer(set, 0)->id, KEYS_SECRET_ID);
    struct jws jws = signed_by(key_set_signer(set, 0), &out);
    key_set_unref(set);
    keys_close(keys);
    assert_ok(keys_open(&keys, &options, &message));
    assert_int_equal(keys_source(keys), KEYS_READ);
    set = keys_current(keys);
    assert_true(key_verify(key_set_signer(set, 0), &jws));
    key_set_unref(set);
    keys_close(keys);
    buffer_release(&out);
}

static void a_secret_signs_and_the_keys_of_the_file_verify(void **state) {
    (void)state;
    struct keys *keys;
    struct key_message message;
    char *text = jwk_text("HS256", "other", false);
    write_file(text);
    free(text);
    assert_ok(keys_open(&keys, &(struct keys_options){path, "given-secret", folder, ""}, &message));
    struct key_set *set = keys_current(keys);
    assert_int_equal(set->count, 2);
    assert_string_equal(key_set_signer(set, 0)->id, KEYS_SECRET_ID);
    assert_non_null(key_set_find(set, SLICE("other")));
    key_set_unref(set);
    keys_close(keys);
}

static void previous_secrets_verify_and_do_not_sign(void **state) {
    (void)state;
    struct keys *keys;
    struct key_message message;
    struct buffer out;
    size_t count = 0;
    const struct keys_options old = {"", "second", folder, ""};
    const struct keys_options options = {"", "third", folder, "first,,second"};
    buffer_init(&out, 16384);
    assert_ok(keys_open(&keys, &old, &message));
    struct key_set *set = keys_current(keys);
    struct jws jws = signed_by(key_set_signer(set, 0), &out);
    key_set_unref(set);
    keys_close(keys);
    assert_ok(keys_open(&keys, &options, &message));
    set = keys_current(keys);
    assert_int_equal(set->count, 3);
    assert_ptr_equal(key_set_signer(set, 0), &set->keys[0]);
    /* Without an id too: all keys have the same one. */
    for (const struct key *key = key_set_find(set, (struct slice){NULL, 0}); key;
         key = key_set_next(set, key))
        assert_int_equal(key_verify(key, &jws), ++count == 3);
    assert_int_equal(count, 3);
    key_set_unref(set);
    keys_close(keys);
    buffer_release(&out);
}

static void a_missing_or_bad_file_is_named(void **state) {
    (void)state;
    struct keys *keys;
    struct key_message message;
    const struct keys_options options = {path, "", folder, ""};
    assert_int_equal(keys_open(&keys, &options, &message), STATUS_SYSTEM_ERROR);
    assert_non_null(strstr(message.text, path));
    write_file("{\"keys\":[]}");
    assert_int_equal(keys_open(&keys, &options, &message), STATUS_INVALID_CONFIG);
    assert_non_null(strstr(message.text, path));
    assert_int_equal(keys_open(&keys, &(struct keys_options){folder, "", folder, ""}, &message),
                     STATUS_SYSTEM_ERROR);
}

static void a_changed_file_replaces_the_set_and_a_bad_one_does_not(void **state) {
    (void)state;
    struct keys *keys;
    struct key_message message;
    write_file("{\"kty\":\"oct\",\"k\":\"c2VjcmV0\",\"kid\":\"one\"}");
    assert_ok(keys_open(&keys, &(struct keys_options){path, "", folder, ""}, &message));
    struct key_set *before = keys_current(keys);
    assert_false(keys_reload(keys, false));
    write_file("{\"keys\":[{\"kty\":\"oct\",\"k\":\"c2VjcmV0\",\"kid\":\"two\"},"
               "{\"kty\":\"oct\",\"k\":\"c2VjcmV0\",\"kid\":\"one\"}]}");
    assert_true(keys_reload(keys, false));
    struct key_set *after = keys_current(keys);
    assert_ptr_not_equal(before, after);
    assert_non_null(key_set_find(after, SLICE("one")));
    assert_string_equal(key_set_signer(after, 0)->id, "two");
    assert_null(key_set_find(before, SLICE("two")));
    write_file("{\"keys\":");
    assert_false(keys_reload(keys, false));
    assert_false(keys_reload(keys, true));
    unlink(path);
    assert_false(keys_reload(keys, false));
    struct key_set *kept = keys_current(keys);
    assert_ptr_equal(kept, after);
    key_set_unref(kept);
    key_set_unref(after);
    key_set_unref(before);
    keys_close(keys);
}

/* The set that a rotation of this text makes; the text becomes the rotated one. */
static struct key_set *rotated(struct buffer *text, struct keys_rotation rotation,
                               char id[KEY_ID_BYTES_MAX + 1]) {
    struct key_message message;
    struct buffer next;
    struct key_set *set = key_set_new();
    buffer_init(&next, 8192);
    assert_ok(keys_rotate(buffer_slice(text), &rotation, &next, id));
    buffer_release(text);
    *text = next;
    assert_ok(key_set_add_jwks(set, buffer_slice(text), &message));
    return set;
}

static void a_rotated_key_signs_after_the_delay_and_the_old_one_verifies_on(void **state) {
    (void)state;
    const uint64_t now_s = 1000000, ends_s = now_s + 30 + 900 + 30;
    struct buffer text;
    char first[KEY_ID_BYTES_MAX + 1], second[KEY_ID_BYTES_MAX + 1];
    buffer_init(&text, 8192);
    assert_ok(buffer_append_slice(
        &text, SLICE("{\"kty\":\"oct\",\"k\":\"c2VjcmV0\",\"kid\":\"old\",\"alg\":\"HS256\"}")));
    struct key_set *set = rotated(&text, (struct keys_rotation){now_s, 30, false}, first);
    assert_int_equal(set->count, 2);
    assert_string_equal(key_set_signer(set, now_s)->id, "old");
    assert_string_equal(key_set_signer(set, now_s + 29)->id, "old");
    assert_string_equal(key_set_signer(set, now_s + 30)->id, first);
    assert_false(key_has_ended(key_set_find(set, SLICE("old")), ends_s - 1));
    assert_true(key_has_ended(key_set_find(set, SLICE("old")), ends_s));
    assert_false(key_has_ended(key_set_find(set, slice_of(first)), UINT64_MAX));
    key_set_unref(set);
    /* A second one within the delay changes no end, and leaves no time without a signer. */
    set = rotated(&text, (struct keys_rotation){now_s + 10, 30, false}, second);
    assert_int_equal(set->count, 3);
    assert_string_not_equal(first, second);
    assert_string_equal(key_set_signer(set, now_s + 29)->id, "old");
    assert_string_equal(key_set_signer(set, now_s + 39)->id, first);
    assert_string_equal(key_set_signer(set, now_s + 40)->id, second);
    assert_true(key_has_ended(key_set_find(set, SLICE("old")), ends_s));
    key_set_unref(set);
    /* A later one forgets keys that have ended. */
    set = rotated(&text, (struct keys_rotation){ends_s + 10, 30, false}, first);
    assert_int_equal(set->count, 2);
    assert_null(key_set_find(set, SLICE("old")));
    assert_string_equal(key_set_signer(set, ends_s + 10)->id, second);
    key_set_unref(set);
    set = rotated(&text, (struct keys_rotation){ends_s + 20, 30, true}, second);
    assert_int_equal(set->count, 1);
    assert_string_equal(key_set_signer(set, ends_s + 20)->id, second);
    key_set_unref(set);
    buffer_release(&text);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(each_key_type_verifies_only_its_own_signature),
        cmocka_unit_test(a_public_key_verifies_and_does_not_sign),
        cmocka_unit_test(keys_are_found_by_id_or_as_the_only_key),
        cmocka_unit_test(a_key_without_an_id_uses_its_thumbprint),
        cmocka_unit_test(a_text_that_is_no_key_set_is_refused_with_a_reason),
        cmocka_unit_test(an_unsound_key_is_refused_by_name_and_the_others_serve),
        cmocka_unit_test(a_key_without_a_valid_id_is_named_by_its_position),
        cmocka_unit_test(unsupported_keys_are_skipped),
        cmocka_unit_test(too_many_keys_are_refused),
        cmocka_unit_test(a_rotated_key_signs_after_the_delay_and_the_old_one_verifies_on),
        cmocka_unit_test_setup_teardown(a_key_is_generated_once_and_readable_only_for_its_owner,
                                        setup, teardown),
        cmocka_unit_test_setup_teardown(a_secret_signs_and_the_keys_of_the_file_verify, setup,
                                        teardown),
        cmocka_unit_test_setup_teardown(previous_secrets_verify_and_do_not_sign, setup, teardown),
        cmocka_unit_test_setup_teardown(a_missing_or_bad_file_is_named, setup, teardown),
        cmocka_unit_test_setup_teardown(a_changed_file_replaces_the_set_and_a_bad_one_does_not,
                                        setup, teardown),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
