/* A call on behalf of an exchange: work on another thread, answered on the exchange's loop.
 * Started and answered on the loop; run belongs to a thread of the store pool or to the writer.
 * Memory: the call is part of the exchange's work, which lives until the call has returned.
 * Errors: a refusal of the pool or the writer is the call's status.
 * answer runs at most once, and only if the exchange can still be answered. */
#ifndef HTTP_EXCHANGE_CALL_H
#define HTTP_EXCHANGE_CALL_H

#include "authority/call.h"
#include "http/exchange.h"

struct exchange_call {
    struct call call; /* run is set for the store pool and the writer */
    struct exchange *exchange;
    void (*answer)(struct exchange_call *call);
};

/* Runs a call on the store pool in the queue of the exchange's principal, and keeps the exchange
 * until exchange_unref. An exchange has one such call at a time. The call is cancelled when the
 * client disconnects. */
void exchange_post_store(struct exchange *exchange, struct call *call);
/* exchange, answer and call.run are set. */
void exchange_call_store(struct exchange_call *call);
void exchange_call_writer(struct exchange_call *call);
/* exchange and answer are set. Another thread ends the call with call_return_post. */
void exchange_call_begin(struct exchange_call *call);
/* No thread took the work: answer runs with the status, in a later turn. */
void exchange_call_fail(struct exchange_call *call, enum status status);

#endif
