/*
 * context_open.h - the steps of opening that read settings. Private to glue.
 */
#ifndef KVF_CONTEXT_OPEN_H
#define KVF_CONTEXT_OPEN_H

#include "context.h"

/*
 * Rank 0 reads the settings of every instance and tells all; each rank then applies the keys that
 * may differ by rank. Collective; agreed.
 */
enum kvf_status context_settings(struct kvf *kvf, const struct kvf_open_params *params);

#endif /* KVF_CONTEXT_OPEN_H */
