#include "http/admit/version_gate.h"

#include "auth/compatibility_claim.h"

#define BODY_BYTES_MAX 2048

enum status version_gate_check(const struct exchange *exchange) {
    const struct compatibility_window *window = &exchange->http->gate.compatibility;
    struct compatibility_claim claim = {.schema_version.size = 0};
    if (!window->is_enforced)
        return STATUS_OK;
    compatibility_claim_query(&claim, exchange->request->query);
    struct compatibility_client client = compatibility_claim_client(&claim);
    return compatibility_check(window, &client);
}

void version_gate_answer(struct exchange *exchange, enum status refusal) {
    struct buffer body;
    buffer_init(&body, BODY_BYTES_MAX);
    /* Without memory for the details the answer has only the code. */
    enum status status =
        compatibility_write_json(&exchange->http->gate.compatibility, refusal, &body);
    exchange_answer_error(
        exchange, &(struct exchange_error){.status = refusal,
                                           .details = status == STATUS_OK ? buffer_slice(&body)
                                                                          : (struct slice){"", 0}});
    buffer_release(&body);
}
