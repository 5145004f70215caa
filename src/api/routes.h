/* The table of routes: method, path, handler and admission of every request.
 * Read-only; any thread.
 * Memory: static.
 * Errors: none.
 * Each pair of method and path appears once. */
#ifndef API_ROUTES_H
#define API_ROUTES_H

#include "http/route.h"

extern const struct route_table api_routes;

#endif
