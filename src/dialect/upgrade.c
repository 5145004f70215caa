#include "dialect/upgrade.h"

#include "http/conn_outlet.h"

struct session *upgrade_to_session(struct exchange *exchange, struct session_options options) {
    options.delivery = conn_loop(exchange->conn)->delivery;
    options.outlet = conn_outlet(exchange->conn);
    options.name = exchange_request_id(exchange);
    struct session *session = session_new(&options);
    if (session)
        conn_attach(exchange->conn, session);
    else
        exchange_answer_status(exchange, STATUS_OUT_OF_MEMORY);
    return session;
}
