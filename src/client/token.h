/* The life of a token by its own claims.
 * Any thread; a pure function.
 * Allocates nothing.
 * A text that is not a token with iat and exp has no known life.
 * A wrong clock of this machine shows as a rest that cannot be; then the whole life counts. */
#ifndef CLIENT_TOKEN_H
#define CLIENT_TOKEN_H

#include <stdint.h>

#include "base/slice.h"

/* False: the token does not tell. */
bool token_life_ms(struct slice token, uint64_t wall_ms, uint64_t *life_ms);

#endif
