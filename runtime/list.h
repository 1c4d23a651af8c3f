/*
 * list.h - doubly linked rings threaded through the objects of a machine: no allocation, O(1).
 *
 * A node lies inside its object; list_object() finds the object again. A node that is in no list
 * points to itself. Nothing here may allocate or log.
 */
#ifndef KVF_LIST_H
#define KVF_LIST_H

#include <stdbool.h>
#include <stddef.h>

/* A head or a member. */
struct list {
    struct list *next;
    struct list *prev;
};

/* The object of type `type` whose member `member` is `node`. */
#define list_object(node, type, member) ((type *)((char *)(node)-offsetof(type, member)))

static inline void list_init(struct list *list)
{
    list->next = list;
    list->prev = list;
}

/* Of a head: no members. Of a member: in no list. */
static inline bool list_empty(const struct list *list)
{
    return list->next == list;
}

static inline struct list *list_first(const struct list *head)
{
    return list_empty(head) ? NULL : head->next;
}

/* The member after `node`, or NULL. */
static inline struct list *list_after(const struct list *head, const struct list *node)
{
    return node->next == head ? NULL : node->next;
}

/* `node` must be in no list. */
static inline void list_push(struct list *head, struct list *node)
{
    node->next = head;
    node->prev = head->prev;
    head->prev->next = node;
    head->prev = node;
}

/* Nothing when it is in no list. */
static inline void list_remove(struct list *node)
{
    node->prev->next = node->next;
    node->next->prev = node->prev;
    list_init(node);
}

/* Takes the first member out, or NULL. */
static inline struct list *list_pop(struct list *head)
{
    struct list *node = list_first(head);

    if (node != NULL)
        list_remove(node);
    return node;
}

#endif /* KVF_LIST_H */
