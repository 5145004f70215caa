/* Nonces that were used: each is taken once, within the skew a client's clock may have.
 * Any thread. Memory: NONCES_MAX of them at most, each until its time has passed.
 * STATUS_TOKEN_REPLAYED for one used before, STATUS_TOKEN_EXPIRED or STATUS_TOKEN_NOT_YET_VALID
 * for a time out of the skew, STATUS_RATE_LIMITED when there is no room, STATUS_OUT_OF_MEMORY.
 * A nonce is forgotten only when its time would be refused anyway; a restart forgets them all. */
#ifndef SERVER_NONCES_H
#define SERVER_NONCES_H

#include <stdint.h>

#include "base/slice.h"
#include "spec/codes.h"

#define NONCES_MAX        65536
#define NONCE_SKEW_MS_MAX 300000

struct nonces;

MUST_CHECK enum status nonces_open(struct nonces **nonces);
void nonces_close(struct nonces *nonces);
/* at_ms: the time the client says it is. */
MUST_CHECK enum status nonces_use(struct nonces *nonces, struct slice nonce, uint64_t at_ms,
                                  uint64_t now_ms);

#endif
