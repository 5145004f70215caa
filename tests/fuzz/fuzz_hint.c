/* Any bytes as a hint of another node. A text that is taken is written again with the same bytes.
 */
#include <stdlib.h>
#include <string.h>

#include "cluster/fanout.h"
#include "fuzz.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    struct hint hint;
    char text[HINT_BYTES];
    if (hint_parse((struct slice){(const char *)data, size}, &hint) != STATUS_OK)
        return 0;
    if (size != HINT_BYTES || hint.log_id == 0 || hint.log_id > HINT_LOG_ID_MAX)
        abort();
    hint_write(&hint, text);
    if (memcmp(text, data, size) != 0)
        abort();
    return 0;
}
