/*
 * credit.h - which flow gets the next region: round robin, one grant a flow and pass, and a flow
 * whose next chunk finds no room is not passed over for ever. Pure; threaded through the flows, so
 * that it takes no memory of its own. Safety does not depend on it.
 *
 * May include base only.
 */
#ifndef XFER_CREDIT_H
#define XFER_CREDIT_H

#include <stdbool.h>
#include <stdint.h>

#include "list.h"

#define CREDIT_PASSED_MIN 8u

/* Lies inside the flow. credit_flow_init() before use. */
struct credit_flow {
    struct list link; /* in the ring: it has chunks without a region */
    uint32_t held;    /* regions; the caller counts down when one is given back */
    uint32_t passed;  /* grants to others since its next chunk found no room */
    bool blocked;     /* its next chunk found no room */
};

struct credit {
    struct list ring;
    uint32_t ring_count;
    uint32_t held_max;         /* regions of one flow at once */
    struct credit_flow *drain; /* nobody else is served until it is; NULL = nobody waits so long */
};

/* What the caller says of one flow's next chunk. */
enum credit_fit {
    CREDIT_FITS,
    CREDIT_NO_ROOM, /* its turn comes when there is room */
    CREDIT_NOT_NOW, /* by a rule of the caller that has nothing to do with room */
};
typedef enum credit_fit (*credit_fit_fn)(void *self, const struct credit_flow *flow);

void credit_init(struct credit *credit, uint32_t held_max);
void credit_flow_init(struct credit_flow *flow);

/* The flow wants regions; nothing when it is in the ring. */
void credit_add(struct credit *credit, struct credit_flow *flow);
/* It wants no more, or is gone; nothing when it is not in the ring. */
void credit_remove(struct credit *credit, struct credit_flow *flow);

/*
 * The flow that is served now, its `held` counted up and itself at the end of the ring; NULL = none
 * can be. The caller takes the region that `fit` said there is.
 */
struct credit_flow *credit_next(struct credit *credit, credit_fit_fn fit, void *self);

/* Aborts when the ring and its counts disagree; for tests. */
void credit_check(const struct credit *credit);

#endif /* XFER_CREDIT_H */
