/* Intrusive doubly linked lists: the node is a member of the caller's object, so that inserting and
 * removing take constant time. struct list has a two-pointer head and both ends; struct hlist has a
 * one-pointer head and only a front, for lists that every connection carries.
 * Thread: one at a time.
 * Memory: owns no object.
 * Invariant: a node of zeroes is in no list; inserting it twice, or removing it when it is in no
 * list, asserts.
 *
 * Any walk may remove the node it stands on, because it reads the next node first:
 *     for (struct list_node *node = list_first(&list), *next; node; node = next) {
 *         next = list_next(&list, node);
 *         struct item *item = container_of(node, struct item, node);
 */
#ifndef BASE_LIST_H
#define BASE_LIST_H

#include <assert.h>
#include <stdbool.h>
#include <stddef.h>

/* The object that holds *pointer as its member. The ternary never takes its second branch; it makes
 * the compiler reject a pointer of another type than the member's. */
#define container_of(pointer, type, member)                                                        \
    ((type *)(void *)((char *)(1 ? (pointer) : &((type *)0)->member) - offsetof(type, member)))

struct list_node {
    struct list_node *next;
    struct list_node *previous;
};

/* A ring: the head is the node before the first and after the last. It may not move. */
struct list {
    struct list_node head;
};

static inline void list_init(struct list *list) {
    list->head.next = list->head.previous = &list->head;
}

static inline bool list_is_empty(const struct list *list) {
    return list->head.next == &list->head;
}

static inline bool list_node_is_linked(const struct list_node *node) {
    return node->next;
}

/* The first node, or NULL. */
static inline struct list_node *list_first(const struct list *list) {
    return list_is_empty(list) ? NULL : list->head.next;
}

/* The last node, or NULL. */
static inline struct list_node *list_last(const struct list *list) {
    return list_is_empty(list) ? NULL : list->head.previous;
}

/* The node after one in this list, or NULL after the last. */
static inline struct list_node *list_next(const struct list *list, const struct list_node *node) {
    assert(list_node_is_linked(node));
    return node->next == &list->head ? NULL : node->next;
}

/* Inserts node after one that is in a list. */
static inline void list_insert_after(struct list_node *earlier, struct list_node *node) {
    assert(list_node_is_linked(earlier) && !list_node_is_linked(node));
    node->previous = earlier;
    node->next = earlier->next;
    earlier->next->previous = node;
    earlier->next = node;
}

static inline void list_push_front(struct list *list, struct list_node *node) {
    list_insert_after(&list->head, node);
}

static inline void list_push_back(struct list *list, struct list_node *node) {
    list_insert_after(list->head.previous, node);
}

static inline void list_remove(struct list_node *node) {
    assert(list_node_is_linked(node));
    node->previous->next = node->next;
    node->next->previous = node->previous;
    *node = (struct list_node){0};
}

/* Removes and returns the first node; NULL from an empty list. */
static inline struct list_node *list_pop_front(struct list *list) {
    struct list_node *node = list_first(list);
    if (!node)
        return NULL;
    /* Not list_remove: static analysis would not see that the head moves on. */
    list->head.next = node->next;
    node->next->previous = &list->head;
    *node = (struct list_node){0};
    return node;
}

struct hlist_node {
    struct hlist_node *next;
    struct hlist_node **pointer_here; /* the head's or the earlier node's pointer to this node */
};

/* A head of zeroes is an empty list. It may not move while it holds nodes. */
struct hlist {
    struct hlist_node *first; /* the newest node; callers read it directly */
};

static inline bool hlist_node_is_linked(const struct hlist_node *node) {
    return node->pointer_here;
}

static inline void hlist_push_front(struct hlist *list, struct hlist_node *node) {
    assert(!hlist_node_is_linked(node));
    node->next = list->first;
    node->pointer_here = &list->first;
    if (node->next)
        node->next->pointer_here = &node->next;
    list->first = node;
}

static inline void hlist_remove(struct hlist_node *node) {
    assert(hlist_node_is_linked(node));
    *node->pointer_here = node->next;
    if (node->next)
        node->next->pointer_here = node->pointer_here;
    *node = (struct hlist_node){0};
}

#endif
