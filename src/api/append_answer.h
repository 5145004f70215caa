/* What the authority answered, as it stands in HTTP answers: the body of a success, the error of
 * a refusal with its details.
 * Any thread. Appends to the caller's buffer; an error's details live in it.
 * Errors: the buffer's own.
 * A refusal says all that a client needs to do better: the actual sequence, how long to wait, how
 * large is too large. */
#ifndef API_APPEND_ANSWER_H
#define API_APPEND_ANSWER_H

#include "authority/append.h"
#include "http/exchange.h"

/* 201 for what was created, 200 for the rest of what was done, else the status's own. */
unsigned append_http_status(const struct append_request *request);
/* {"event","deduplicated"}, with "run" or "worker" in front where the entity itself was asked for;
 * now_ms is for the worker's liveness. */
MUST_CHECK enum status append_write_answer(struct buffer *out, const struct append_request *request,
                                           uint64_t now_ms);
/* What a refusal is about, where that is known; else absent. */
struct slice append_refused_topic(const struct append_request *request);
/* A JSON object of what is known about the refusal, or nothing. */
MUST_CHECK enum status append_write_details(struct buffer *out,
                                            const struct append_request *request);
/* {"index","status","event"?,"deduplicated"?,"error"?} of a batch. */
MUST_CHECK enum status append_write_item(struct buffer *out, struct exchange *exchange,
                                         uint64_t index, const struct append_request *request);

#endif
