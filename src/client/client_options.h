/* The options of a client with copies of their texts and the defaults of their numbers, and the
 * life of its tokens.
 * Thread: any.
 * Memory: the texts live in one block of memory, which the caller frees.
 * Errors: false: no memory, and nothing was changed.
 * Invariant: no number is zero, or beyond its maximum, afterwards. */
#ifndef CLIENT_CLIENT_OPTIONS_H
#define CLIENT_CLIENT_OPTIONS_H

#include <khala/khala.h>
#include <stdint.h>

#include "base/slice.h"
#include "spec/codes.h"

MUST_CHECK bool client_options_copy(struct khala_options *own, char **texts,
                                    const struct khala_options *options);

/* The bytes of a text with its end; 0 for NULL. */
size_t client_text_size(const char *text);
/* Copies a text to *at, which has room for it, and moves *at behind it. NULL for NULL. */
const char *client_text_copy(char **at, const char *text);

/* The time that a token is still valid, by its own claims. If it cannot be that long, the clock of
 * this machine is wrong, and the whole life counts. False: the text is not a token with iat and
 * exp. */
bool token_life_ms(struct slice token, uint64_t wall_ms, uint64_t *life_ms);

#endif
