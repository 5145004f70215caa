#include "delivery/session_token.h"

#include <assert.h>

#include "hub/frame_row.h"
#include "http/conn.h"
#include "delivery/dialect.h"
#include "server/server.h"

/* How long before its token ends a link is told. */
#define REAUTH_MS 30000

bool link_is_expired(const struct link *link) {
    return link->principal &&
           principal_is_expired(link->principal, clock_wall_ms(&link->loop->clock));
}

void link_cut(struct link *link, enum status status) {
    if (!conn_is_behind(link->conn)) {
        if (!link->is_closing)
            link_end(link, status);
        return;
    }
    if (!link->is_closing)
        link_tell_why(link, status, (unsigned)ws_close_code(status));
    conn_cut(link->conn);
}

bool link_ends_with_token(struct link *link) {
    if (!link->conn || link->is_closing || !link_is_expired(link))
        return false;
    link_cut(link, STATUS_TOKEN_EXPIRED);
    return true;
}

/* Only what comes before the next heartbeat gets a deadline: those with many different delays would
 * otherwise be many. */
void link_watch_expiry(struct link *link) {
    uint64_t now_ms = clock_wall_ms(&link->loop->clock);
    uint64_t end_ms = link->principal ? link->principal->expires_at_ms : 0;
    if (end_ms == 0)
        return;
    uint64_t next_ms = end_ms;
    if (!link->is_reauth_told && link->dialect->reauth)
        next_ms = end_ms > REAUTH_MS ? end_ms - REAUTH_MS : 0;
    uint64_t delay_ms = next_ms > now_ms ? next_ms - now_ms : 0;
    if (delay_ms <= link->loop->config->heartbeat_ms)
        io_loop_deadline_in(link->loop, &link->expiry, DEADLINE_EXPIRY, delay_ms);
}

void link_expiry_near(struct link *link) {
    uint64_t now_ms = clock_wall_ms(&link->loop->clock);
    if (link_ends_with_token(link))
        return;
    if (!link->is_reauth_told && link->dialect->reauth) {
        link->is_reauth_told = true;
        if (link->dialect->reauth(link, link->principal->expires_at_ms - now_ms, &link->own) ==
            STATUS_OK)
            link_flush(link);
        else
            conn_close(link->conn);
    }
    if (link->conn && !link->is_closing)
        link_watch_expiry(link);
}

void link_admitted(struct link *link, const struct principal *principal) {
    assert(!link->principal);
    link->principal = principal;
    link_watch_expiry(link);
}

/* ---- a fresh one ---- */

static bool same_text(struct slice a, struct slice b) {
    return a.data && b.data ? slice_equal(a, b) : a.data == b.data;
}

static bool is_same(const struct principal *a, const struct principal *b) {
    return same_text(a->who.user_id, b->who.user_id) &&
           same_text(a->who.guest_scope, b->who.guest_scope) &&
           same_text(a->who.org_id, b->who.org_id) && a->read_all == b->read_all;
}

/* Owners of runs and workers were looked up when the reader began, and do not change. */
static bool still_may_read(const struct link_reader *reader, const struct principal *principal) {
    const struct subscription_options *options = &reader->subscription.options;
    struct slice topic = topic_is_log(options->topic) ? SLICE("runtime.audit") : options->topic;
    struct grant before = grant_check(options->principal, topic, NULL);
    struct grant after = grant_check(principal, topic, NULL);
    return after.status == before.status &&
           (after.status != STATUS_OK || after.view == options->view);
}

enum status link_refresh(struct link *link, const struct principal *principal) {
    if (!is_same(link->principal, principal))
        return STATUS_OWNER_MISMATCH;
    if (principal_is_expired(principal, clock_wall_ms(&link->loop->clock)))
        return STATUS_TOKEN_EXPIRED;
    for (const struct link_reader *reader = link->readers; reader; reader = reader->next)
        if (!still_may_read(reader, principal))
            return STATUS_FORBIDDEN_TOPIC;
    for (struct link_reader *reader = link->readers; reader; reader = reader->next)
        reader->subscription.options.principal = principal;
    principal_unref(link->principal);
    link->principal = principal_ref(principal);
    link->is_reauth_told = false;
    deadline_drop(&link->expiry);
    link_watch_expiry(link);
    return STATUS_OK;
}
