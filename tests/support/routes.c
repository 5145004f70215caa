/* Prints the route table of the server as JSON, for tests that must meet every route. */
#include <stdio.h>

#include "api/routes.h"

int main(void) {
    static const char *const methods[] = {"GET",   "HEAD",   "POST",    "PUT",
                                          "PATCH", "DELETE", "OPTIONS", "OTHER"};
    putchar('[');
    for (size_t i = 0; i < api_routes.count; i++) {
        const struct route *row = &api_routes.rows[i];
        printf("%s{\"method\":\"%s\",\"path\":\"%s\",\"flags\":%u,\"roles\":[", i > 0 ? ",\n" : "",
               methods[row->method], row->path, row->flags);
        bool is_first = true;
        for (unsigned role = KEY_ROLE_NONE + 1; role < KEY_ROLE_COUNT; role++) {
            if (!(row->roles & KEY_ROLE_BIT(role)))
                continue;
            printf(is_first ? "\"%s\"" : ",\"%s\"", key_role_name((enum key_role)role));
            is_first = false;
        }
        printf("],\"needs_key\":%s,\"is_producers\":%s,\"takes_token\":%s}",
               row->flags & ROUTE_OPERATOR ? "true" : "false",
               row->flags & ROUTE_PRODUCER ? "true" : "false",
               row->flags & (ROUTE_TOKEN | ROUTE_TOKEN_OR_OPERATOR) ? "true" : "false");
    }
    puts("]");
    return 0;
}
