#include <pthread.h>

#include "base/buffer.h"
#include "base/sha256.h"
#include "test.h"

/* The examples of FIPS 180, and the empty text. */
static const struct {
    const char *text;
    const char *hex;
} answers[] = {
    {"", "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855"},
    {"abc", "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad"},
    {"abcdbcdecdefdefgefghfghighijhijkijkljklmklmnlmnomnopnopq",
     "248d6a61d20638b8e5c026930c3e6039a33ce45964ff2167f6ecedd419db06c1"},
    {"abcdefghbcdefghicdefghijdefghijkefghijklfghijklmghijklmnhijklmnoijklmnopjklmnopqklmnopqrlmnop"
     "qr"
     "smnopqrstnopqrstu",
     "cf5b16a778af8380036ce59e7b0492370b249b11e8f07a51afac45037afee9d1"},
};

static void assert_digest(const uint8_t digest[SHA256_BYTES], const char *hex) {
    struct buffer text;
    buffer_init(&text, 2 * SHA256_BYTES);
    assert_ok(buffer_append_hex(&text, digest, SHA256_BYTES));
    assert_slice(buffer_slice(&text), hex);
    buffer_release(&text);
}

static void gives_the_published_answers(void **state) {
    (void)state;
    uint8_t digest[SHA256_BYTES];
    for (size_t i = 0; i < sizeof(answers) / sizeof(answers[0]); i++) {
        sha256(answers[i].text, strlen(answers[i].text), digest);
        assert_digest(digest, answers[i].hex);
    }
    sha256(NULL, 0, digest);
    assert_digest(digest, answers[0].hex);
}

static void pieces_answer_as_the_whole(void **state) {
    (void)state;
    uint8_t digest[SHA256_BYTES];
    struct sha256 hash;
    sha256_init(&hash);
    for (size_t i = 0; i < sizeof(answers) / sizeof(answers[0]); i++) {
        size_t size = strlen(answers[i].text);
        for (size_t cut = 0; cut <= size; cut++) {
            sha256_update(&hash, answers[i].text, cut);
            sha256_update(&hash, answers[i].text + cut, size - cut);
            sha256_final(&hash, digest);
            assert_digest(digest, answers[i].hex);
        }
    }
    sha256_release(&hash);
}

static void a_copy_continues_on_its_own(void **state) {
    (void)state;
    uint8_t digest[SHA256_BYTES];
    struct sha256 hash;
    sha256_init(&hash);
    sha256_update(&hash, answers[1].text, 1);
    struct sha256 copy = hash;
    sha256_update(&hash, "x", 1);
    sha256_final(&hash, digest);
    sha256_update(&copy, answers[1].text + 1, strlen(answers[1].text) - 1);
    sha256_final(&copy, digest);
    assert_digest(digest, answers[1].hex);
}

static void hashes_a_million_letters(void **state) {
    (void)state;
    uint8_t digest[SHA256_BYTES];
    char piece[1000];
    memset(piece, 'a', sizeof(piece));
    struct sha256 hash;
    sha256_init(&hash);
    for (int i = 0; i < 1000; i++)
        sha256_update(&hash, piece, sizeof(piece));
    sha256_final(&hash, digest);
    assert_digest(digest, "cdc76e5c9914fb9281a1c7e284d73e67f1809a48a497200e046d39ccc7112cd0");
    sha256_release(&hash);
}

static void *hash_many(void *result) {
    uint8_t digest[SHA256_BYTES];
    for (int i = 0; i < 1000; i++)
        sha256("abc", 3, digest);
    memcpy(result, digest, SHA256_BYTES);
    return NULL;
}

static void threads_do_not_disturb_each_other(void **state) {
    (void)state;
    pthread_t threads[4];
    uint8_t digests[4][SHA256_BYTES];
    for (int i = 0; i < 4; i++)
        assert_int_equal(pthread_create(&threads[i], NULL, hash_many, digests[i]), 0);
    for (int i = 0; i < 4; i++)
        assert_int_equal(pthread_join(threads[i], NULL), 0);
    for (int i = 0; i < 4; i++)
        assert_digest(digests[i], answers[1].hex);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(gives_the_published_answers),
        cmocka_unit_test(pieces_answer_as_the_whole),
        cmocka_unit_test(a_copy_continues_on_its_own),
        cmocka_unit_test(hashes_a_million_letters),
        cmocka_unit_test(threads_do_not_disturb_each_other),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
