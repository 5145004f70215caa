/* Sets a property of the store from a thread that has no write session.
 * Any thread but the writer's; it waits until the writer has done it.
 * Allocates nothing.
 * Errors are those of writer_post_job and of the store.
 * The writer has not stopped. */
#ifndef AUTHORITY_JOB_WRITER_PROPERTY_H
#define AUTHORITY_JOB_WRITER_PROPERTY_H

#include "authority/writer.h"
#include "store/store.h"

MUST_CHECK enum status writer_put_property(struct writer *writer,
                                           const struct store_property *property);

#endif
