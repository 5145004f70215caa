/* The proof that a forwarded request comes from a node of the same cluster, not from a client.
 * Any thread; pure functions.
 * Memory: the caller's.
 * Errors: none.
 * Nodes share the operator key. The proof shows that its sender has the key, without the key. It
 * only exempts a connection from the limits of connections; it admits no request. */
#ifndef HTTP_FORWARD_NODE_PROOF_H
#define HTTP_FORWARD_NODE_PROOF_H

#include "http/admit/operator_key.h"

#define NODE_PROOF_SIZE (2 * SHA256_BYTES)

/* Writes the proof of this node, with a zero at its end. */
void node_proof_write(const struct operator_key *key, struct slice node_id,
                      char text[NODE_PROOF_SIZE + 1]);
/* Whether the request has a proof that fits its node id and the key or the previous one. */
bool node_proof_check(const struct operator_key *key, const struct http1_request *request);

#endif
