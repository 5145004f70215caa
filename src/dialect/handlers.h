/* The handlers of the dialects, which the route table names.
 * Each runs on its connection's loop, with the whole request read.
 * Memory: the exchange belongs to its connection, and is gone once it became a session.
 * Errors are answers of the exchange.
 * All but handle_messages turn the exchange into a session. */
#ifndef DIALECT_HANDLERS_H
#define DIALECT_HANDLERS_H

struct exchange;

void handle_messages(struct exchange *exchange); /* poll.c */
void handle_phoenix(struct exchange *exchange);
void handle_sse(struct exchange *exchange);
void handle_log_sse(struct exchange *exchange);
void handle_topic_ws(struct exchange *exchange);
void handle_audit_ws(struct exchange *exchange);

#endif
