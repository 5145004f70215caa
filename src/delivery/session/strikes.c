#include "delivery/session/strikes.h"

static bool is_strike(const struct strikes *strikes, const struct strikes_look *look) {
    bool took_nothing = look->sent_bytes == strikes->sent_bytes;
    /* The first look has nothing to compare a lag with. */
    bool catches_up = !strikes->has_looked || look->lag < strikes->lag;
    if (look->is_blocked && took_nothing)
        return true;
    return look->lag > look->lag_max && !catches_up && (look->was_blocked || look->is_blocked);
}

bool strikes_look(struct strikes *strikes, const struct strikes_look *look) {
    strikes->count = is_strike(strikes, look) ? strikes->count + 1 : 0;
    strikes->sent_bytes = look->sent_bytes;
    strikes->lag = look->lag;
    strikes->has_looked = true;
    return strikes->count > 0 && strikes->count >= look->strikes_max;
}
