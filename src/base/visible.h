/* Escapes text for display: line ends, terminal commands, characters that reorder text and invalid
 * UTF-8 are escaped, all other characters stay.
 * Thread: any.
 * Memory: the caller's.
 * Errors: none: any bytes can be shown.
 * Invariant: the result is valid UTF-8 without control characters, so no value can look like
 * another line. */
#ifndef BASE_VISIBLE_H
#define BASE_VISIBLE_H

#include "base/slice.h"

#define VISIBLE_BYTES_MAX 8

enum visible_form {
    VISIBLE_TEXT, /* for people: \n, \x1b */
    VISIBLE_JSON, /* inside a JSON string: \n, \u001b */
};

/* One character as shown, and the number of text bytes it stands for. */
struct visible {
    size_t consumed;
    size_t size;
    char bytes[VISIBLE_BYTES_MAX];
};

/* Shows the first character of a text that is not empty. */
struct visible visible_next(struct slice text, enum visible_form form);
/* Holds a character that reorders the text around it, ends a line or has no width, or invalid
 * UTF-8. Such a text can be displayed like another. */
bool visible_has_deceptive(struct slice text);
/* Whether a value is one word in a line of name=value, so that it needs no quotes. */
bool visible_is_word(struct slice text);

#endif
