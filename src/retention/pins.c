#include "retention/pins.h"

#include <assert.h>

void pins_init(struct pins *pins) {
    *pins = (struct pins){.first = NULL};
    pthread_mutex_init(&pins->lock, NULL);
}

void pins_release(struct pins *pins) {
    assert(!pins->first);
    pthread_mutex_destroy(&pins->lock);
}

void pins_add(struct pins *pins, struct retention_pin *pin, struct slice topic, uint64_t seq) {
    pthread_mutex_lock(&pins->lock);
    *pin = (struct retention_pin){.topic = topic, .seq = seq, .next = pins->first};
    if (pins->first)
        pins->first->previous = pin;
    pins->first = pin;
    pins->count++;
    pthread_mutex_unlock(&pins->lock);
}

void pins_remove(struct pins *pins, struct retention_pin *pin) {
    pthread_mutex_lock(&pins->lock);
    *(pin->previous ? &pin->previous->next : &pins->first) = pin->next;
    if (pin->next)
        pin->next->previous = pin->previous;
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
    for (const struct retention_pin *pin = pins->first; pin; pin = pin->next)
        if (pin->seq < below_seq - 1 && slice_equal(pin->topic, topic))
            below_seq = pin->seq + 1;
    return below_seq;
}
