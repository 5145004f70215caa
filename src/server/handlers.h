/* The handlers behind the routes, a file a subject. Each runs on its connection's loop with the
 * whole body read, and answers its exchange once, now or later from a task on the same loop. */
#ifndef SERVER_HANDLERS_H
#define SERVER_HANDLERS_H

struct exchange;

void handle_live(struct exchange *exchange);
void handle_ready(struct exchange *exchange);

#endif
