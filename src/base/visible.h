/* Text shown as what it is: what would end a line, command a terminal, reorder what stands around
 * it or is no text at all is escaped, the rest is left alone.
 * Any thread. No memory but the caller's.
 * Cannot fail: any bytes have a form.
 * The shown text is valid UTF-8 and holds no control character, so no value can look like another
 * line. */
#ifndef BASE_VISIBLE_H
#define BASE_VISIBLE_H

#include "base/slice.h"

#define VISIBLE_BYTES_MAX 8

enum visible_form {
    VISIBLE_TEXT, /* for people: \n, \x1b */
    VISIBLE_JSON, /* inside a JSON string: \n, \u001b */
};

/* One character as it is shown, and how many bytes of the text it stands for. */
struct visible {
    size_t consumed;
    size_t size;
    char bytes[VISIBLE_BYTES_MAX];
};

/* Of the first character of a text that is not empty. */
struct visible visible_next(struct slice text, enum visible_form form);
/* Whether a value reads as one word of a line of name=value, so that it needs no quotes. */
bool visible_is_word(struct slice text);

#endif
