/* Marks free memory of our allocators for AddressSanitizer, so that it detects access to it as it
 * does for malloc. In other builds both functions do nothing.
 * Thread: any. */
#ifndef BASE_POISON_H
#define BASE_POISON_H

#include <stddef.h>

#if defined(__SANITIZE_ADDRESS__)
#define POISON_IS_WATCHED 1
#elif defined(__has_feature)
#if __has_feature(address_sanitizer)
#define POISON_IS_WATCHED 1
#endif
#endif

#ifdef POISON_IS_WATCHED
#include <sanitizer/asan_interface.h>
#endif

static inline void poison(const void *data, size_t size) {
#ifdef POISON_IS_WATCHED
    __asan_poison_memory_region(data, size);
#else
    (void)data, (void)size;
#endif
}

static inline void unpoison(const void *data, size_t size) {
#ifdef POISON_IS_WATCHED
    __asan_unpoison_memory_region(data, size);
#else
    (void)data, (void)size;
#endif
}

#endif
