#include "delivery/session/strikes.h"

static bool is_strike(const struct strikes *strikes, const struct strikes_sample *sample) {
    bool took_nothing = sample->sent_bytes == strikes->sent_bytes;
    /* The first check has no lag to compare with. */
    bool catches_up = !strikes->has_sample || sample->lag < strikes->lag;
    if (sample->is_blocked && took_nothing)
        return true;
    return sample->lag > sample->lag_max && !catches_up &&
           (sample->was_blocked || sample->is_blocked);
}

bool strikes_check(struct strikes *strikes, const struct strikes_sample *sample) {
    strikes->count = is_strike(strikes, sample) ? strikes->count + 1 : 0;
    strikes->sent_bytes = sample->sent_bytes;
    strikes->lag = sample->lag;
    strikes->has_sample = true;
    return strikes->count > 0 && strikes->count >= sample->strikes_max;
}
