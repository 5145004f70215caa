/* The upgrade of an exchange: its connection becomes a session's.
 * Belongs to the exchange's loop. Takes over the state of the options in any case.
 * A session that cannot be made is answered as an error of the exchange.
 * After an upgrade the exchange is gone. */
#ifndef DIALECT_UPGRADE_H
#define DIALECT_UPGRADE_H

#include "delivery/session/session_events.h"
#include "http/exchange.h"

/* Fills in delivery, outlet and name of the options. NULL: the exchange has been answered. */
struct session *upgrade_to_session(struct exchange *exchange, struct session_options options);

#endif
