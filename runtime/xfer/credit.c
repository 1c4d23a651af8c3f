/* credit.c - see credit.h. */
#include "xfer/credit.h"

#include "check.h"

void credit_init(struct credit *credit, uint32_t held_max)
{
    list_init(&credit->ring);
    credit->ring_count = 0;
    credit->held_max = held_max;
    credit->drain = NULL;
}

void credit_flow_init(struct credit_flow *flow)
{
    list_init(&flow->link);
    flow->held = 0;
    flow->passed = 0;
    flow->blocked = false;
}

static void unblock(struct credit *credit, struct credit_flow *flow)
{
    flow->blocked = false;
    flow->passed = 0;
    if (credit->drain == flow)
        credit->drain = NULL;
}

void credit_add(struct credit *credit, struct credit_flow *flow)
{
    if (!list_empty(&flow->link))
        return;
    list_push(&credit->ring, &flow->link);
    credit->ring_count++;
}

void credit_remove(struct credit *credit, struct credit_flow *flow)
{
    unblock(credit, flow);
    if (list_empty(&flow->link))
        return;
    list_remove(&flow->link);
    credit->ring_count--;
}

/* Those that found no room have been passed over once more; the first one too often is served. */
static void count_passed(struct credit *credit, const struct credit_flow *served)
{
    uint32_t most =
        credit->ring_count > CREDIT_PASSED_MIN / 2 ? 2 * credit->ring_count : CREDIT_PASSED_MIN;

    for (struct list *node = list_first(&credit->ring); node != NULL;
         node = list_after(&credit->ring, node)) {
        struct credit_flow *flow = list_object(node, struct credit_flow, link);

        if (flow == served || !flow->blocked)
            continue;
        flow->passed++;
        if (credit->drain == NULL && flow->passed >= most)
            credit->drain = flow;
    }
}

static struct credit_flow *serve(struct credit *credit, struct credit_flow *flow)
{
    unblock(credit, flow);
    flow->held++;
    list_remove(&flow->link);
    list_push(&credit->ring, &flow->link);
    count_passed(credit, flow);
    return flow;
}

struct credit_flow *credit_next(struct credit *credit, credit_fit_fn fit, void *self)
{
    if (credit->drain != NULL) {
        enum credit_fit fits =
            credit->drain->held >= credit->held_max ? CREDIT_NOT_NOW : fit(self, credit->drain);

        if (fits == CREDIT_FITS)
            return serve(credit, credit->drain);
        if (fits == CREDIT_NO_ROOM)
            return NULL;
        unblock(credit, credit->drain); /* it waits for something else */
    }
    for (struct list *node = list_first(&credit->ring); node != NULL;
         node = list_after(&credit->ring, node)) {
        struct credit_flow *flow = list_object(node, struct credit_flow, link);

        if (flow->held >= credit->held_max)
            continue;
        switch (fit(self, flow)) {
        case CREDIT_FITS:
            return serve(credit, flow);
        case CREDIT_NO_ROOM:
            flow->blocked = true;
            break;
        case CREDIT_NOT_NOW:
            break;
        }
    }
    return NULL;
}

void credit_check(const struct credit *credit)
{
    uint32_t count = 0;
    bool drain = credit->drain == NULL;

    for (const struct list *node = list_first(&credit->ring); node != NULL;
         node = list_after(&credit->ring, node)) {
        const struct credit_flow *flow = list_object(node, struct credit_flow, link);

        KVF_ASSERT(flow->held <= credit->held_max);
        KVF_ASSERT(flow->blocked || flow->passed == 0);
        drain = drain || credit->drain == flow;
        count++;
    }
    KVF_ASSERT(count == credit->ring_count);
    KVF_ASSERT(drain);
}
