/* The table of routes: method, path, handler and admission of every request. Read-only.
 * Thread: any.
 * Invariant: each pair of method and path appears once. */
#ifndef API_ROUTES_H
#define API_ROUTES_H

#include "http/route.h"

extern const struct route_table api_routes;

#endif
