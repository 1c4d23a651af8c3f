/*
 * test_device_broken.c - a kernel that faults: the device is dead, says so once, and closes.
 *
 * Skipped without a GPU. A program of its own: CUDA is of no use in the process afterwards, and
 * checkers of kernels would report the planted fault.
 */
#include "testing.h"

#include <stdio.h>
#include <string.h>

#include "device.h"
#include "kernels/tiles.h"
#include "skip.h"

static void a_fault_kills_the_device_and_is_told_once(void **state)
{
    static const struct stripe_base base = {0, 0};
    static const struct stripe_pair pair = {0, 0};
    struct stripe stripe = {.src = 4096,
                            .dst = 8192,
                            .bases = &base,
                            .pairs = &pair,
                            .base_count = 1,
                            .pair_count = 1,
                            .piece_count = 1,
                            .piece_bytes = 64};
    struct device_ticket ticket, later = {9, 9};
    struct tiles_cursor cursor;
    struct device *device;
    char text[DEVICE_TEXT_BYTES];
    const char *told;
    void *memory;

    (void)state;
    assert_int_equal(device_open(kvf_heap_system(), 0, 1, &device, text), KVF_OK);
    assert_int_equal(device_look(device), DEVICE_WELL);
    assert_null(device_error_once(device));
    tiles_init_stripes(&cursor, TILES_COPY, &stripe, 1);
    assert_int_equal(device_tiles_queue(device, 0, &cursor, 16, NULL, &ticket), KVF_OK);
    assert_int_equal(device_wait(device, &ticket), KVF_E_CUDA);
    assert_false(device_ended(device, &ticket));
    assert_int_equal(device_look(device), DEVICE_DEAD);
    told = device_error_once(device);
    assert_non_null(told);
    assert_non_null(strstr(told, "cudaStreamSynchronize: "));
    print_message("%s\n", told);
    assert_null(device_error_once(device));

    tiles_init_stripes(&cursor, TILES_COPY, &stripe, 1);
    assert_int_equal(device_tiles_queue(device, 0, &cursor, 16, NULL, &later), KVF_E_CUDA);
    assert_int_equal(later.number, 0);
    assert_int_equal(device_alloc(device, 64, &memory), KVF_E_CUDA);
    assert_int_equal(device_look(device), DEVICE_DEAD);
    device_close(device);
}

int main(void)
{
    static const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_fault_kills_the_device_and_is_told_once),
    };
    char text[DEVICE_TEXT_BYTES];
    char reason[DEVICE_TEXT_BYTES + 20];
    uint32_t count;

    device_count(&count, text);
    if (count == 0) {
        snprintf(reason, sizeof(reason), "no device (%s)", text);
        test_skip(reason);
    }
    return cmocka_run_group_tests(tests, NULL, NULL);
}
