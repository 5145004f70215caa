#include "retention/pins.h"

#include <assert.h>

void pins_init(struct pins *pins) {
    list_init(&pins->list);
    atomic_init(&pins->count, 0);
    pthread_mutex_init(&pins->lock, NULL);
}

void pins_release(struct pins *pins) {
    assert(list_is_empty(&pins->list));
    pthread_mutex_destroy(&pins->lock);
}

void pins_add(struct pins *pins, struct retention_pin *pin, struct slice topic, uint64_t seq) {
    pthread_mutex_lock(&pins->lock);
    *pin = (struct retention_pin){.topic = topic, .seq = seq};
    list_push_back(&pins->list, &pin->node);
    pins->count++;
    pthread_mutex_unlock(&pins->lock);
}

void pins_remove(struct pins *pins, struct retention_pin *pin) {
    pthread_mutex_lock(&pins->lock);
    list_remove(&pin->node);
    pins->count--;
    pthread_mutex_unlock(&pins->lock);
}

uint64_t pins_count(const struct pins *pins) {
    return atomic_load(&pins->count);
}

void pins_lock(struct pins *pins) {
    pthread_mutex_lock(&pins->lock);
}

void pins_unlock(struct pins *pins) {
    pthread_mutex_unlock(&pins->lock);
}

uint64_t pins_below_seq(const struct pins *pins, struct slice topic, uint64_t below_seq) {
    for (struct list_node *node = list_first(&pins->list); node;
         node = list_next(&pins->list, node)) {
        const struct retention_pin *pin = container_of(node, struct retention_pin, node);
        if (pin->seq < below_seq - 1 && slice_equal(pin->topic, topic))
            below_seq = pin->seq + 1;
    }
    return below_seq;
}
