/* The one table of routes: method, path, handler and admission of every request that is served.
 * Read-only; any thread. Static memory. Cannot fail.
 * Each pattern and method stands once. */
#ifndef API_ROUTES_H
#define API_ROUTES_H

#include "http/route.h"

extern const struct route_table api_routes;

#endif
