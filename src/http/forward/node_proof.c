#include "http/forward/node_proof.h"

#include <assert.h>
#include <openssl/crypto.h>
#include <openssl/evp.h>
#include <openssl/hmac.h>

#include "http/forward/forward_head.h"

/* Keeps these proofs apart from other uses of the key. */
#define PURPOSE      "khala-forwarded:"
#define ID_BYTES_MAX 64

static void write_proof(const uint8_t digest[SHA256_BYTES], struct slice node_id,
                        char text[NODE_PROOF_SIZE + 1]) {
    static const char digits[] = "0123456789abcdef";
    unsigned char mac[SHA256_BYTES];
    unsigned size = sizeof(mac);
    char message[sizeof(PURPOSE) + ID_BYTES_MAX] = PURPOSE;
    assert(node_id.size <= ID_BYTES_MAX);
    memcpy(message + strlen(PURPOSE), node_id.data, node_id.size);
    const unsigned char *made =
        HMAC(EVP_sha256(), digest, SHA256_BYTES, (const unsigned char *)message,
             strlen(PURPOSE) + node_id.size, mac, &size);
    assert(made && size == sizeof(mac));
    (void)made;
    for (size_t i = 0; i < sizeof(mac); i++) {
        text[2 * i] = digits[mac[i] >> 4];
        text[2 * i + 1] = digits[mac[i] & 15];
    }
    text[NODE_PROOF_SIZE] = '\0';
}

void node_proof_write(const struct operator_key *key, struct slice node_id,
                      char text[NODE_PROOF_SIZE + 1]) {
    write_proof(key->digest, node_id, text);
}

bool node_proof_check(const struct operator_key *key, const struct http1_request *request) {
    struct slice node_id, proof;
    char expected[NODE_PROOF_SIZE + 1];
    if (!http1_header_find(request, FORWARDED_FIELD, &node_id) ||
        !http1_header_find(request, PROOF_FIELD, &proof) || proof.size != NODE_PROOF_SIZE ||
        node_id.size > ID_BYTES_MAX)
        return false;
    write_proof(key->digest, node_id, expected);
    bool is_same = CRYPTO_memcmp(expected, proof.data, NODE_PROOF_SIZE) == 0;
    if (!is_same && key->has_previous) {
        write_proof(key->previous_digest, node_id, expected);
        is_same = CRYPTO_memcmp(expected, proof.data, NODE_PROOF_SIZE) == 0;
    }
    return is_same;
}
