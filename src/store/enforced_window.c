#include "store/enforced_window.h"

#include "topic/topic_table.h"

struct topic_window enforced_window(const struct store_topic *topic, const struct policy *policy) {
    const struct topic_window whole = {1, topic->head_seq, policy->replay_budget_events};
    struct topic_window window = {topic->oldest_seq, topic->head_seq, policy->replay_budget_events};
    uint64_t first_seq = continuity_bootstrap(&whole).from_seq;
    if (topic_begins_in_log(topic->name) && first_seq < window.oldest_seq)
        window.oldest_seq = first_seq;
    return window;
}
