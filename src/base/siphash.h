/* SipHash-1-3: a keyed hash of 64 bits. Without the key an attacker cannot choose texts that
 * collide. Not for signatures or stored values: it has one compression round only.
 * Thread: any.
 * Errors: siphash_process_key aborts if the system has no random bytes. */
#ifndef BASE_SIPHASH_H
#define BASE_SIPHASH_H

#include <stdint.h>

#include "base/slice.h"

struct siphash_key {
    uint64_t low; /* the first eight bytes of the key, little-endian */
    uint64_t high;
};

uint64_t siphash(struct siphash_key key, struct slice text);
/* Random, the same for the life of the process. */
struct siphash_key siphash_process_key(void);

#endif
