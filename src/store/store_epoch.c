#include "store/store_epoch.h"

#include "base/clock.h"

_Static_assert(STORE_EPOCH_SIZE == UUID_TEXT_SIZE, "an epoch is a uuid's text");

enum status store_epoch_mint(char epoch[STORE_EPOCH_SIZE + 1]) {
    struct uuid7_generator generator;
    struct clock clock;
    clock_init(&clock);
    enum status status = uuid7_generator_init(&generator, NULL);
    if (status != STATUS_OK)
        return status;
    struct uuid uuid = uuid7_next(&generator, clock_wall_ms(&clock));
    uuid_format(&uuid, epoch);
    epoch[STORE_EPOCH_SIZE] = '\0';
    return STATUS_OK;
}
