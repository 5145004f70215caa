/* Answers to appends: the body of a success, and the error of a refusal with its details.
 * Any thread.
 * Memory: everything is appended to the caller's buffer.
 * Errors: those of the buffer.
 * A refusal has all that a client needs to correct its request: the actual sequence, how long to
 * wait, the state, the setting, or the largest size. */
#ifndef API_APPEND_ANSWER_H
#define API_APPEND_ANSWER_H

#include "authority/append.h"
#include "http/exchange.h"

/* 201 if an entity was created, 200 for other successes, otherwise the HTTP status of the refusal.
 */
unsigned append_http_status(const struct append_request *request);
/* {"event","deduplicated"}, after "run" or "worker" if the request was about the entity itself. The
 * entity is left out for a producer, unless the request created it. "hint" follows where the type
 * of a run's event looks like the end of the run; the first event of such a type is logged too. */
MUST_CHECK enum status append_write_answer(struct buffer *out, struct exchange *exchange,
                                           const struct append_request *request);
/* The sentence for people, in text where it is made here; NULL: the status's own. */
#define APPEND_MESSAGE_BYTES_MAX 256
const char *append_message(const struct append_request *request,
                           char text[APPEND_MESSAGE_BYTES_MAX]);
/* The topic that was refused; absent if it is unknown. */
struct slice append_refused_topic(const struct append_request *request);
/* A JSON object with the details of the refusal, or nothing. */
MUST_CHECK enum status append_write_details(struct buffer *out,
                                            const struct append_request *request);
/* The answer to one item of a batch: {"index","status","event"?,"deduplicated"?,"hint"?,
 * "error"?}. */
MUST_CHECK enum status append_write_item(struct buffer *out, struct exchange *exchange,
                                         uint64_t index, const struct append_request *request);

#endif
