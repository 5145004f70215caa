/* GET /internal/v1/topics/{topic}/policy: the policy in force on this node, and the rule of the
 * topics file that decides. The topic need not exist. */
#include "api/api.h"
#include "api/handlers.h"
#include "delivery/access.h"
#include "http/store_read.h"
#include "topic/policy_json.h"

static void read_policy(struct store_read *read, struct store_session *session) {
    struct topic_address address;
    enum status status = topic_address_find(session, read->id, &read->arena, &address);
    /* Of a stream that no topic has yet, the name is not known. */
    if (status == STATUS_OK && !address.topic.data)
        status = STATUS_NOT_FOUND;
    if (status == STATUS_OK)
        status = policy_write_json(&read->out, api_of(read->exchange)->policies, address.topic);
    if (status == STATUS_OK)
        status = buffer_append_byte(&read->out, '\n');
    read->status = status;
}

void handle_topic_policy(struct exchange *exchange) {
    struct store_read *read = store_read_new(exchange, ENTITY_TOPIC, read_policy);
    if (read)
        store_read_post(read);
}
