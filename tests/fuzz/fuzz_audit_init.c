/* Any bytes as the first message of an audit socket. What is taken has a nonce, a time and texts
 * within the message, and its filters answer for any event; what is refused says why. */
#include "dialect/audit_init.h"
#include "fuzz.h"
#include "wire/json.h"

static void check_text(const struct audit_init *init, struct slice text) {
    const struct buffer *texts = &init->texts;
    require(text.data >= texts->data && text.data + text.size <= texts->data + texts->size);
}

static bool matches(const struct audit_init *init, struct slice type, struct slice key) {
    return audit_init_wants(init, &(struct frame_content){.kind = type, .document_key = key});
}

static void check_names(const struct audit_init *init, const struct audit_names *names) {
    require(names->count <= AUDIT_FILTER_NAMES_MAX && (names->given || names->count == 0));
    for (size_t i = 0; i < names->count; i++)
        check_text(init, names->names[i]);
}

static void check(const struct audit_init *init) {
    check_text(init, init->capability);
    check_text(init, init->nonce);
    require(init->nonce.size >= 1 && init->nonce.size <= AUDIT_NONCE_BYTES_MAX);
    require(init->at_ms <= JSON_INTEGER_MAX);
    check_names(init, &init->event_types);
    check_names(init, &init->entities);
    bool some = matches(init, SLICE("run.log"), SLICE("run:a"));
    if (!audit_init_filters(init))
        require(some);
    /* Every text of a filter lets its own event through, where the other filter is silent. */
    for (size_t i = 0; !init->entities.given && i < init->event_types.count; i++)
        require(matches(init, init->event_types.names[i], SLICE("run:a")));
    for (size_t i = 0; !init->event_types.given && i < init->entities.count; i++)
        require(matches(init, SLICE("run.log"), init->entities.names[i]));
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    struct audit_init init;
    const char *problem = NULL;
    enum status status =
        audit_init_read((struct slice){(const char *)data, size}, false, &init, &problem);
    if (status == STATUS_OK) {
        check(&init);
        audit_init_release(&init);
    } else {
        require(status == STATUS_INVALID_MESSAGE && problem && *problem);
    }
    return 0;
}
