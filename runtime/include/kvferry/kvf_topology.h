/*
 * kvf_topology.h - which instances a world holds, and which rank plays what in them.
 *
 * Plain data and pure calls; no MPI. Ranks are dealt to instances in order: the first instance
 * takes world ranks 0 .. ranks-1, the next one the following, and so on.
 */
#ifndef KVF_TOPOLOGY_H
#define KVF_TOPOLOGY_H

#include <kvferry/kvf_layout.h>
#include <kvferry/kvf_status.h>

#ifdef __cplusplus
extern "C" {
#endif

enum kvf_side { KVF_CONTEXT, KVF_GENERATION };

#define KVF_NAME_BYTES 64
#define KVF_INSTANCES_MAX 1024
#define KVF_PP_MAX 1024

/* One replica of the model: tp_size * pp_size ranks. */
struct kvf_instance {
    char name[KVF_NAME_BYTES]; /* "ctx0", "gen1": made from the side and a count unless named */
    enum kvf_side side;
    uint32_t first_rank; /* world rank of its rank 0 */
    uint32_t tp_size;
    uint32_t pp_size;
    bool attention_dp;
    uint32_t dp_size; /* 1 without attention DP */
    /* [pp_size], or NULL: split as evenly as it goes, the earlier stages take one more. */
    const uint32_t *layers_per_pp;
};

struct kvf_topology {
    uint32_t instance_count;
    uint32_t rank_count; /* sum over the instances */
    const struct kvf_instance *instances;
};

/*
 * Reads the text form: instances separated by ';', each "ctx|gen key=value...":
 * tp=N pp=N dp=N adp layers=a,b,... x=COUNT name=NAME, e.g. "ctx tp=2 pp=2; gen tp=4 adp".
 * `adp` alone means dp = tp; dp=N implies adp. `topology_out` gives: kvf_topology_free().
 * On an error `text_out` (may be NULL) says what and where. Errors: E_PARSE, E_TOPOLOGY,
 * E_DP_SHAPE,
 * E_NOMEM. Any thread; allocates.
 */
KVF_API enum kvf_status kvf_topology_parse(const char *text, struct kvf_topology **topology_out,
                                           char *text_out, size_t text_bytes);

KVF_API void kvf_topology_free(struct kvf_topology *topology);

/*
 * Writes the text form of a topology: what kvf_topology_parse() reads back as the same.
 * Errors: E_TOO_LARGE.
 */
KVF_API enum kvf_status kvf_topology_format(const struct kvf_topology *topology, char *text_out,
                                            size_t text_bytes);

/* Instance of a world rank, -1 when the rank is beyond the topology. */
KVF_API int kvf_topology_instance_of(const struct kvf_topology *topology, uint32_t world_rank);

/*
 * Place of a world rank in its instance for a model of `layer_count` layers. Where the instance has
 * no layers_per_pp, `layers_scratch` (KVF_PP_MAX words, the caller's; the place borrows it) takes
 * the even split. Errors: E_INVAL, E_TOPOLOGY (layers_per_pp does not sum to layer_count).
 */
KVF_API enum kvf_status kvf_place(const struct kvf_topology *topology, uint32_t world_rank,
                                  uint32_t layer_count, uint32_t *layers_scratch,
                                  struct kvf_place *place_out);

#ifdef __cplusplus
}
#endif

#endif /* KVF_TOPOLOGY_H */
