#include "auth/principal.h"

static bool same(struct slice a, struct slice b) {
    return a.data && b.data && slice_equal(a, b);
}

bool principal_may_read(const struct principal *principal, const struct owner *owner) {
    const struct owner *who = &principal->who;
    if (principal->read_all)
        return true;
    if (owner->user_id.data || owner->guest_scope.data)
        return same(who->user_id, owner->user_id) || same(who->guest_scope, owner->guest_scope);
    return same(who->org_id, owner->org_id);
}
