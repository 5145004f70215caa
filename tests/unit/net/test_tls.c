/* TLS sessions against OpenSSL's client, in memory: input in pieces of any size, and peers that
 * break the protocol. */
#include "base/limits.h"
#include "net/tls.h"

#include <openssl/pem.h>
#include <openssl/ssl.h>
#include <openssl/x509.h>
#include <unistd.h>

#include "test.h"

#define READ_BYTES   (48u << 10)
#define MEMORY_BYTES (READ_BYTES + TLS_RECORD_BYTES)

static char folder[] = "/tmp/khala-tls-XXXXXX";
static char certificate_file[64];
static char key_file[64];
static struct tls_context *context;
static char memory[MEMORY_BYTES];

/* Writes a certificate of that name and its key to the files of the context. */
static void issue(const char *name) {
    EVP_PKEY *key = EVP_EC_gen("P-256");
    X509 *made = X509_new();
    X509_set_version(made, X509_VERSION_3);
    ASN1_INTEGER_set(X509_get_serialNumber(made), 1);
    X509_gmtime_adj(X509_getm_notBefore(made), 0);
    X509_gmtime_adj(X509_getm_notAfter(made), 3600);
    X509_set_pubkey(made, key);
    X509_NAME_add_entry_by_txt(X509_get_subject_name(made), "CN", MBSTRING_ASC,
                               (const unsigned char *)name, -1, -1, 0);
    X509_set_issuer_name(made, X509_get_subject_name(made));
    assert_true(X509_sign(made, key, EVP_sha256()) > 0);
    FILE *file = fopen(certificate_file, "w");
    assert_int_equal(PEM_write_X509(file, made), 1);
    fclose(file);
    file = fopen(key_file, "w");
    assert_int_equal(PEM_write_PrivateKey(file, key, NULL, NULL, 0, NULL, NULL), 1);
    fclose(file);
    X509_free(made);
    EVP_PKEY_free(key);
}

static int setup(void **state) {
    (void)state;
    struct tls_message message;
    assert_non_null(mkdtemp(folder));
    snprintf(certificate_file, sizeof(certificate_file), "%s/cert.pem", folder);
    snprintf(key_file, sizeof(key_file), "%s/key.pem", folder);
    issue("first");
    const struct tls_options options = {certificate_file, key_file, TLS_VERSION_1_2};
    assert_ok(tls_context_open(&context, &options, &message));
    return 0;
}

static int teardown(void **state) {
    (void)state;
    tls_context_close(context);
    unlink(certificate_file);
    unlink(key_file);
    return rmdir(folder);
}

/* ---- a client ---- */

struct pair {
    struct tls server;
    SSL_CTX *rules;
    SSL *client;
    enum tls_step step;
    struct buffer plain; /* what the server decrypted */
    uint64_t seed;
    size_t cut_max; /* of the pieces the server receives */
};

static void pair_open(struct pair *pair, int version, size_t cut_max) {
    memset(pair, 0, sizeof(*pair));
    pair->seed = cut_max;
    pair->cut_max = cut_max;
    buffer_init(&pair->plain, 8u << 20);
    pair->rules = SSL_CTX_new(TLS_client_method());
    SSL_CTX_set_max_proto_version(pair->rules, version);
    pair->client = SSL_new(pair->rules);
    SSL_set_bio(pair->client, BIO_new(BIO_s_mem()), BIO_new(BIO_s_mem()));
    SSL_set_connect_state(pair->client);
    assert_ok(tls_init(&pair->server, context));
}

static void pair_close(struct pair *pair) {
    tls_release(&pair->server);
    SSL_free(pair->client);
    SSL_CTX_free(pair->rules);
    buffer_release(&pair->plain);
}

static void hand_to_client(struct pair *pair) {
    struct buffer *out = &pair->server.out;
    if (out->size > 0)
        assert_int_equal(BIO_write(SSL_get_rbio(pair->client), out->data, (int)out->size),
                         out->size);
    buffer_release(out);
}

/* Gives the client's bytes to the server, in pieces of random size. */
static void hand_to_server(struct pair *pair) {
    char *data;
    size_t left = (size_t)BIO_get_mem_data(SSL_get_wbio(pair->client), &data);
    while (left > 0 && pair->step == TLS_STEP_MORE) {
        size_t size = 1 + test_random(&pair->seed) % pair->cut_max;
        size_t got = 0;
        if (size > left)
            size = left;
        pair->step =
            tls_receive(&pair->server, (struct slice){data, size}, memory, sizeof(memory), &got);
        assert_ok(buffer_append(&pair->plain, memory, got));
        assert_true(pair->server.out.size <= TLS_OUT_BYTES_MAX);
        data += size;
        left -= size;
    }
    (void)BIO_reset(SSL_get_wbio(pair->client));
}

static void shake_hands(struct pair *pair) {
    for (int round = 0; round < 8; round++) {
        (void)SSL_do_handshake(pair->client);
        hand_to_server(pair);
        hand_to_client(pair);
    }
    assert_true(tls_is_open(&pair->server));
    assert_int_equal(SSL_is_init_finished(pair->client), 1);
}

static const char *name_seen(const struct pair *pair, char name[32]) {
    X509 *seen = SSL_get0_peer_certificate(pair->client);
    X509_NAME_get_text_by_NID(X509_get_subject_name(seen), NID_commonName, name, 32);
    return name;
}

/* ---- tests ---- */

static void bytes_arrive_complete_in_pieces_of_any_size(void **state) {
    (void)state;
    static const size_t cuts[] = {1, 7, 1000, 20000, READ_BYTES};
    static const int versions[] = {TLS1_2_VERSION, TLS1_3_VERSION};
    static char text[TLS_BATCH_BYTES_MAX];
    static char echo[TLS_BATCH_BYTES_MAX];
    for (size_t i = 0; i < 10; i++) {
        struct pair pair;
        pair_open(&pair, versions[i % 2], cuts[i / 2]);
        shake_hands(&pair);
        for (size_t j = 0; j < sizeof(text); j++)
            text[j] = (char)test_random(&pair.seed);
        assert_int_equal(SSL_write(pair.client, text, sizeof(text)), sizeof(text));
        hand_to_server(&pair);
        assert_int_equal(pair.plain.size, sizeof(text));
        assert_memory_equal(pair.plain.data, text, sizeof(text));
        assert_ok(tls_send(&pair.server, (struct slice){text, sizeof(text)}));
        hand_to_client(&pair);
        for (size_t at = 0; at < sizeof(echo);) {
            int got = SSL_read(pair.client, echo + at, (int)(sizeof(echo) - at));
            assert_true(got > 0);
            at += (size_t)got;
        }
        assert_memory_equal(echo, text, sizeof(text));
        pair_close(&pair);
    }
}

static void a_partial_record_fits_with_the_input_that_follows(void **state) {
    (void)state;
    static char text[TLS_RECORD_BYTES * 4];
    struct pair pair;
    char *data;
    size_t got;
    pair_open(&pair, TLS1_3_VERSION, READ_BYTES);
    shake_hands(&pair);
    assert_int_equal(SSL_write(pair.client, text, sizeof(text)), sizeof(text));
    size_t size = (size_t)BIO_get_mem_data(SSL_get_wbio(pair.client), &data);
    size_t first = size / 4 - 1;
    assert_int_equal(
        tls_receive(&pair.server, (struct slice){data, first}, memory, sizeof(memory), &got),
        TLS_STEP_MORE);
    assert_int_equal(got, 0);
    assert_int_equal(tls_receive(&pair.server, (struct slice){data + first, READ_BYTES}, memory,
                                 sizeof(memory), &got),
                     TLS_STEP_MORE);
    assert_true(got >= 3 * TLS_RECORD_BYTES - 1 && got <= sizeof(memory));
    pair_close(&pair);
}

static void the_end_is_reported_after_the_data_before_it(void **state) {
    (void)state;
    struct pair pair;
    pair_open(&pair, TLS1_3_VERSION, READ_BYTES);
    shake_hands(&pair);
    assert_int_equal(SSL_write(pair.client, "last words", 10), 10);
    assert_int_equal(SSL_shutdown(pair.client), 0);
    hand_to_server(&pair);
    assert_int_equal(pair.step, TLS_STEP_ENDED);
    assert_slice(buffer_slice(&pair.plain), "last words");
    assert_ok(tls_send(&pair.server, SLICE("an answer")));
    tls_end(&pair.server);
    hand_to_client(&pair);
    char answer[16];
    assert_int_equal(SSL_read(pair.client, answer, sizeof(answer)), 9);
    assert_int_equal(SSL_read(pair.client, answer, sizeof(answer)), 0);
    assert_int_equal(SSL_get_shutdown(pair.client) & SSL_RECEIVED_SHUTDOWN, SSL_RECEIVED_SHUTDOWN);
    pair_close(&pair);
}

static void changed_bytes_end_the_session_for_good(void **state) {
    (void)state;
    struct pair pair;
    char *data;
    size_t got;
    pair_open(&pair, TLS1_3_VERSION, READ_BYTES);
    shake_hands(&pair);
    assert_int_equal(SSL_write(pair.client, "one", 3), 3);
    size_t size = (size_t)BIO_get_mem_data(SSL_get_wbio(pair.client), &data);
    data[size - 1] ^= 1;
    hand_to_server(&pair);
    assert_int_equal(pair.step, TLS_STEP_FAILED);
    assert_int_equal(pair.plain.size, 0);
    assert_true(pair.server.out.size > 0);
    assert_int_equal(tls_receive(&pair.server, SLICE("more"), memory, sizeof(memory), &got),
                     TLS_STEP_FAILED);
    assert_int_equal(tls_send(&pair.server, SLICE("more")), STATUS_SYSTEM_ERROR);
    pair_close(&pair);
}

static void garbage_never_opens_a_session(void **state) {
    (void)state;
    uint64_t seed = 1;
    for (int i = 0; i < 2000; i++) {
        struct tls tls;
        char garbage[256];
        size_t got;
        enum tls_step step = TLS_STEP_MORE;
        assert_ok(tls_init(&tls, context));
        for (int piece = 0; piece < 4 && step == TLS_STEP_MORE; piece++) {
            for (size_t j = 0; j < sizeof(garbage); j++)
                garbage[j] = (char)test_random(&seed);
            /* Starts like the record of a ClientHello, so that OpenSSL parses some of it. */
            if (piece == 0 && i % 2)
                memcpy(garbage, "\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03", 11);
            step = tls_receive(&tls, (struct slice){garbage, sizeof(garbage)}, memory,
                               sizeof(memory), &got);
            assert_int_equal(got, 0);
            assert_false(tls_is_open(&tls));
        }
        tls_release(&tls);
    }
}

static void a_peer_that_forces_answers_and_does_not_read_is_ended(void **state) {
    (void)state;
    struct pair pair;
    pair_open(&pair, TLS1_3_VERSION, READ_BYTES);
    shake_hands(&pair);
    int rounds = 0;
    for (; pair.step == TLS_STEP_MORE && rounds < 100000; rounds++) {
        assert_int_equal(SSL_key_update(pair.client, SSL_KEY_UPDATE_REQUESTED), 1);
        assert_int_equal(SSL_do_handshake(pair.client), 1);
        hand_to_server(&pair);
    }
    /* The session fails, or it answers at most once. Both are bounded. */
    assert_true(pair.step == TLS_STEP_FAILED || pair.server.out.size < 1024);
    assert_true(pair.server.out.size <= TLS_OUT_BYTES_MAX);
    pair_close(&pair);
}

/* Sends KeyUpdates in one input; returns how the server takes them. */
static enum tls_step update_keys(struct pair *pair, unsigned count, int kind) {
    char *data;
    size_t got;
    for (unsigned i = 0; i < count; i++) {
        assert_int_equal(SSL_key_update(pair->client, kind), 1);
        assert_int_equal(SSL_do_handshake(pair->client), 1);
    }
    size_t size = (size_t)BIO_get_mem_data(SSL_get_wbio(pair->client), &data);
    enum tls_step step =
        tls_receive(&pair->server, (struct slice){data, size}, memory, sizeof(memory), &got);
    (void)BIO_reset(SSL_get_wbio(pair->client));
    return step;
}

static void messages_other_than_data_are_limited_however_they_arrive(void **state) {
    (void)state;
    static const int kinds[] = {SSL_KEY_UPDATE_NOT_REQUESTED, SSL_KEY_UPDATE_REQUESTED};
    for (int i = 0; i < 2; i++) {
        struct pair pair;
        pair_open(&pair, TLS1_3_VERSION, READ_BYTES);
        shake_hands(&pair);
        /* The handshake used some. */
        unsigned left = pair.server.control_left;
        assert_true(left >= TLS_CONTROL_MAX / 2);
        assert_int_equal(update_keys(&pair, left, kinds[i]), TLS_STEP_MORE);
        assert_int_equal(pair.server.control_left, 0);
        assert_false(pair.server.is_flooding);
        assert_int_equal(update_keys(&pair, 1, kinds[i]), TLS_STEP_FAILED);
        assert_true(pair.server.is_flooding);
        assert_int_equal(update_keys(&pair, 1, kinds[i]), TLS_STEP_FAILED);
        pair_close(&pair);
    }
}

static void a_granted_message_is_accepted_and_data_needs_none(void **state) {
    (void)state;
    struct pair pair;
    pair_open(&pair, TLS1_3_VERSION, READ_BYTES);
    shake_hands(&pair);
    assert_int_equal(update_keys(&pair, pair.server.control_left, SSL_KEY_UPDATE_NOT_REQUESTED),
                     TLS_STEP_MORE);
    for (int i = 0; i < 1000; i++)
        assert_int_equal(SSL_write(pair.client, "x", 1), 1);
    char *data;
    size_t got;
    size_t size = (size_t)BIO_get_mem_data(SSL_get_wbio(pair.client), &data);
    assert_int_equal(
        tls_receive(&pair.server, (struct slice){data, size}, memory, sizeof(memory), &got),
        TLS_STEP_MORE);
    (void)BIO_reset(SSL_get_wbio(pair.client));
    assert_int_equal(got, 1000);
    assert_true(pair.server.records >= 1000);
    pair.server.control_left = 1;
    assert_int_equal(update_keys(&pair, 1, SSL_KEY_UPDATE_NOT_REQUESTED), TLS_STEP_MORE);
    assert_int_equal(update_keys(&pair, 1, SSL_KEY_UPDATE_NOT_REQUESTED), TLS_STEP_FAILED);
    pair_close(&pair);
}

/* OpenSSL refuses it with a warning and reports no message. */
static void a_renegotiation_is_refused_and_counts(void **state) {
    (void)state;
    struct pair pair;
    pair_open(&pair, TLS1_2_VERSION, READ_BYTES);
    shake_hands(&pair);
    unsigned left = pair.server.control_left;
    assert_int_equal(SSL_renegotiate(pair.client), 1);
    (void)SSL_do_handshake(pair.client);
    hand_to_server(&pair);
    assert_int_equal(pair.step, TLS_STEP_MORE);
    assert_true(pair.server.control_left < left);
    pair_close(&pair);
}

static void a_new_certificate_applies_to_new_sessions(void **state) {
    (void)state;
    struct pair before;
    struct pair after;
    struct tls_message message = {""};
    char name[32];
    pair_open(&before, TLS1_3_VERSION, 100);
    shake_hands(&before);
    issue("second");
    assert_ok(tls_context_reload(context, &message));
    pair_open(&after, TLS1_2_VERSION, 100);
    shake_hands(&after);
    assert_string_equal(name_seen(&before, name), "first");
    assert_string_equal(name_seen(&after, name), "second");
    assert_int_equal(SSL_write(before.client, "still here", 10), 10);
    hand_to_server(&before);
    assert_slice(buffer_slice(&before.plain), "still here");
    pair_close(&before);
    pair_close(&after);
}

static void unusable_files_change_nothing(void **state) {
    (void)state;
    struct tls_message message = {""};
    struct pair pair;
    char name[32];
    int64_t not_after_s = tls_context_not_after_s(context);
    assert_int_equal(truncate(certificate_file, 100), 0);
    assert_int_equal(tls_context_reload(context, &message), STATUS_INVALID_CONFIG);
    assert_non_null(strstr(message.text, certificate_file));
    unlink(key_file);
    assert_int_equal(tls_context_reload(context, &message), STATUS_INVALID_CONFIG);
    assert_non_null(strstr(message.text, key_file));
    pair_open(&pair, TLS1_3_VERSION, 100);
    shake_hands(&pair);
    assert_string_equal(name_seen(&pair, name), "second");
    assert_int_equal(tls_context_not_after_s(context), not_after_s);
    pair_close(&pair);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(bytes_arrive_complete_in_pieces_of_any_size),
        cmocka_unit_test(a_partial_record_fits_with_the_input_that_follows),
        cmocka_unit_test(the_end_is_reported_after_the_data_before_it),
        cmocka_unit_test(changed_bytes_end_the_session_for_good),
        cmocka_unit_test(garbage_never_opens_a_session),
        cmocka_unit_test(a_peer_that_forces_answers_and_does_not_read_is_ended),
        cmocka_unit_test(messages_other_than_data_are_limited_however_they_arrive),
        cmocka_unit_test(a_granted_message_is_accepted_and_data_needs_none),
        cmocka_unit_test(a_renegotiation_is_refused_and_counts),
        cmocka_unit_test(a_new_certificate_applies_to_new_sessions),
        cmocka_unit_test(unusable_files_change_nothing),
    };
    return cmocka_run_group_tests(tests, setup, teardown);
}
