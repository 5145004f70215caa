#include "delivery/delivery.h"

#include <stdlib.h>

void delivery_loop_open(struct delivery_loop *delivery, struct delivery *shared,
                        struct io_loop *io) {
    const struct delivery_options *options = &shared->options;
    *delivery = (struct delivery_loop){.shared = shared, .io = io};
    scheduler_init(&delivery->scheduler,
                   &(struct scheduler_options){options->slice_frames, DELIVERY_FRAMES_MAX});
    ws_shared_init(&delivery->websockets);
    feeds_open(&delivery->feeds, io, shared->hub);
}

void delivery_loop_release(struct delivery_loop *delivery) {
    feeds_close(&delivery->feeds);
    scheduler_release(&delivery->scheduler);
    ws_shared_release(&delivery->websockets);
    slab_release(&delivery->sessions);
    slab_release(&delivery->subscribers);
    slab_release(&delivery->framings);
    if (delivery->deflater)
        ws_deflater_release(delivery->deflater);
    free(delivery->deflater);
}
