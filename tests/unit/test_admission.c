/* test_admission.c - room for requests: what the ceilings promise is had. */
#include "testing.h"

#include <string.h>

#include "admission.h"
#include "geo_make.h"

#define REQUESTS_MAX 24u
#define BLOCKS_MAX 256u
#define ROUNDS 20000u

struct bed {
    struct geo_make_model model;
    struct geo_make_grid grid;
    struct geo_record *record;
    struct admission admission;
    uint32_t slots[BLOCKS_MAX];
};

static void bed_init(struct bed *bed, uint32_t requests_max)
{
    struct geo_make_params make = {
        .model = &bed->model, .grid = &bed->grid, .side = GEO_CONTEXT, .slots = BLOCKS_MAX};

    bed->grid = geo_make_grid(1, 0, 2);
    geo_make_model(&bed->model, 2, 1, 8, 4);
    bed->record = geo_make_record(&make, 0);
    memset(&bed->admission, 0, sizeof(bed->admission));
    assert_int_equal(admission_init(&bed->admission,
                                    &(struct admission_params){
                                        .heap = kvf_heap_system(),
                                        .record = bed->record,
                                        .requests_max = requests_max,
                                        .blocks_max = BLOCKS_MAX,
                                        .message_max = BLOCKS_MAX,
                                        .ended_max = 1,
                                        .ended_ttl_ns = 1,
                                    }),
                     KVF_OK);
    for (uint32_t i = 0; i < BLOCKS_MAX; i++)
        bed->slots[i] = i;
}

static void bed_fini(struct bed *bed)
{
    admission_fini(&bed->admission);
    geo_record_close(bed->record);
}

static enum kvf_status take(struct bed *bed, uint64_t rid, uint32_t blocks,
                            struct admission_request **request_out)
{
    const struct kvf_block_list list = {.first = 0, .count = blocks, .slots = bed->slots};
    const struct admission_ask ask = {
        .rid = rid,
        .prompt_tokens = blocks * 4,
        .list_count = 1,
        .lists = &list,
        .now_ns = rid * 10,
    };
    struct geo_text text = {{0}};

    return admission_take(&bed->admission, &ask, request_out, &text);
}

/* Requests of all sizes that end in any order: gaps between them cost no room. */
static void room_within_the_ceilings_is_always_had(void **state)
{
    uint64_t live[REQUESTS_MAX];
    uint32_t sizes[REQUESTS_MAX], count = 0, blocks = 0;
    uint64_t seed = UINT64_C(0x9e3779b97f4a7c15);
    struct bed bed;

    (void)state;
    bed_init(&bed, REQUESTS_MAX);
    for (uint64_t rid = 1; rid <= ROUNDS; rid++) {
        struct admission_request *request = NULL;
        uint32_t size, victim;

        seed = seed * UINT64_C(6364136223846793005) + 1442695040888963407;
        size = 1 + (uint32_t)(seed >> 33) % 40;
        while (count == REQUESTS_MAX || blocks + size > BLOCKS_MAX) {
            assert_int_equal(take(&bed, rid, size, &request), KVF_BUSY);
            victim = (uint32_t)(seed >> 40) % count;
            admission_end(&bed.admission, live[victim], rid * 10);
            blocks -= sizes[victim];
            live[victim] = live[--count];
            sizes[victim] = sizes[count];
        }
        assert_int_equal(take(&bed, rid, size, &request), KVF_OK);
        admission_copied(&bed.admission, request, rid, request->slots);
        live[count] = rid;
        sizes[count++] = size;
        blocks += size;
    }
    bed_fini(&bed);
}

/* The reactor may be late: the place belongs to another request by then. */
static void a_late_copy_takes_nothing_from_another(void **state)
{
    struct admission_request *first = NULL, *second = NULL;
    uint32_t *slots;
    struct bed bed;

    (void)state;
    bed_init(&bed, 1);
    assert_int_equal(take(&bed, 1, 3, &first), KVF_OK);
    slots = first->slots;
    admission_end(&bed.admission, 1, 1);
    assert_int_equal(take(&bed, 2, 3, &second), KVF_OK);
    assert_ptr_equal(second, first);
    admission_copied(&bed.admission, first, 1, slots);
    assert_non_null(second->slots);
    bed_fini(&bed);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(room_within_the_ceilings_is_always_had),
        cmocka_unit_test(a_late_copy_takes_nothing_from_another),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
