#include "base/siphash.h"

#include <assert.h>
#include <endian.h>
#include <pthread.h>
#include <sys/random.h>

struct lanes {
    uint64_t a, b, c, d;
};

static inline uint64_t rotate(uint64_t word, unsigned bits) {
    return word << bits | word >> (64 - bits);
}

/* Two add-rotate-xor halves on (a, b) and (c, d), then on (c, b) and (a, d). */
static inline struct lanes mix(struct lanes v) {
    v.a += v.b;
    v.c += v.d;
    v.b = rotate(v.b, 13) ^ v.a;
    v.d = rotate(v.d, 16) ^ v.c;
    v.a = rotate(v.a, 32);
    v.c += v.b;
    v.a += v.d;
    v.b = rotate(v.b, 17) ^ v.c;
    v.d = rotate(v.d, 21) ^ v.a;
    v.c = rotate(v.c, 32);
    return v;
}

static inline struct lanes absorb(struct lanes v, uint64_t word) {
    v.d ^= word;
    v = mix(v);
    v.a ^= word;
    return v;
}

uint64_t siphash(struct siphash_key key, struct slice text) {
    /* The constants of the definition: "somepseudorandomlygeneratedbytes". */
    struct lanes v = {key.low ^ 0x736f6d6570736575, key.high ^ 0x646f72616e646f6d,
                      key.low ^ 0x6c7967656e657261, key.high ^ 0x7465646279746573};
    size_t whole = text.size - text.size % 8;
    for (size_t at = 0; at < whole; at += 8) {
        uint64_t word;
        memcpy(&word, text.data + at, 8);
        v = absorb(v, le64toh(word));
    }
    /* The last word: what is left of the text, and its size in the highest byte. */
    uint64_t last = (uint64_t)text.size << 56;
    for (size_t at = whole; at < text.size; at++)
        last |= (uint64_t)(uint8_t)text.data[at] << (at - whole) * 8;
    v = absorb(v, last);
    v.c ^= 0xff;
    v = mix(mix(mix(v)));
    return v.a ^ v.b ^ v.c ^ v.d;
}

static struct siphash_key process_key;

static void process_key_draw(void) {
    ssize_t size = getrandom(&process_key, sizeof(process_key), 0);
    assert(size == sizeof(process_key));
}

struct siphash_key siphash_process_key(void) {
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    pthread_once(&once, process_key_draw);
    return process_key;
}
