/* test_wire.c - cursors, optional fields, checksums. */
#include "testing.h"

#include <string.h>

#include "wire.h"

static void wire_numbers_are_little_endian(void **state)
{
    static const uint8_t want[] = {0x01, 0x03, 0x02, 0x07, 0x06, 0x05, 0x04, 0x0f,
                                   0x0e, 0x0d, 0x0c, 0x0b, 0x0a, 0x09, 0x08, 'x'};
    uint8_t bytes[sizeof(want)];
    struct wire_writer writer = wire_writer_make(bytes, sizeof(bytes));
    struct wire_reader reader = wire_reader_make(want, sizeof(want));

    (void)state;
    wire_put_u8(&writer, 0x01);
    wire_put_u16(&writer, 0x0203);
    wire_put_u32(&writer, 0x04050607);
    wire_put_u64(&writer, UINT64_C(0x08090a0b0c0d0e0f));
    wire_put_bytes(&writer, "x", 1);
    assert_false(writer.failed);
    assert_int_equal(writer.len_bytes, sizeof(want));
    assert_memory_equal(bytes, want, sizeof(want));
    assert_int_equal(wire_get_u8(&reader), 0x01);
    assert_int_equal(wire_get_u16(&reader), 0x0203);
    assert_int_equal(wire_get_u32(&reader), 0x04050607);
    assert_true(wire_get_u64(&reader) == UINT64_C(0x08090a0b0c0d0e0f));
    assert_false(wire_reader_ended(&reader));
    assert_int_equal(*wire_get_bytes(&reader, 1), 'x');
    assert_true(wire_reader_ended(&reader));
}

static void wire_reader_stays_failed_after_an_overrun(void **state)
{
    static const uint8_t bytes[8] = {1, 2, 3, 4, 5, 6, 7, 8};

    (void)state;
    for (size_t len = 0; len < 8; len++) {
        struct wire_reader reader = wire_reader_make(bytes, len);

        assert_true(wire_get_u64(&reader) == 0);
        assert_true(reader.failed);
        assert_int_equal(wire_get_u8(&reader), 0);
        assert_null(wire_get_bytes(&reader, 0));
        assert_false(wire_reader_ended(&reader));
        assert_true(wire_get_part(&reader, 0).failed);
    }
}

static void wire_writer_stays_failed_and_writes_nothing_past_the_end(void **state)
{
    uint8_t bytes[9];

    (void)state;
    for (size_t max = 0; max < 8; max++) {
        struct wire_writer writer = wire_writer_make(bytes, max);

        memset(bytes, 0xee, sizeof(bytes));
        wire_put_u64(&writer, 0);
        assert_true(writer.failed);
        wire_put_u8(&writer, 0);
        for (size_t i = 0; i < sizeof(bytes); i++)
            assert_int_equal(bytes[i], 0xee);
    }
}

static void wire_counting_writer_finds_the_size(void **state)
{
    struct wire_writer writer = wire_writer_count();
    size_t begin;

    (void)state;
    wire_put_u32(&writer, 1);
    begin = wire_put_field_begin(&writer, 2);
    (void)wire_put_room(&writer, 1000);
    wire_put_field_end(&writer, begin);
    assert_false(writer.failed);
    assert_int_equal(writer.len_bytes, 4 + WIRE_FIELD_HEAD_BYTES + 1000);
}

static void wire_fields_nest_and_come_back(void **state)
{
    uint8_t bytes[64];
    struct wire_writer writer = wire_writer_make(bytes, sizeof(bytes));
    struct wire_reader reader;
    struct wire_field field;
    struct wire_field inner;
    size_t outer = wire_put_field_begin(&writer, 1 | WIRE_FIELD_REQUIRED);
    size_t begin = wire_put_field_begin(&writer, 7);

    (void)state;
    wire_put_u16(&writer, 0xbeef);
    wire_put_field_end(&writer, begin);
    wire_put_field_end(&writer, outer);
    wire_put_field_end(&writer, wire_put_field_begin(&writer, 2));
    reader = wire_reader_make(bytes, writer.len_bytes);
    assert_true(wire_get_field(&reader, &field));
    assert_true(wire_field_is_required(&field));
    assert_true(wire_get_field(&field.value, &inner));
    assert_int_equal(inner.tag, 7);
    assert_false(wire_field_is_required(&inner));
    assert_int_equal(wire_get_u16(&inner.value), 0xbeef);
    assert_true(wire_reader_ended(&inner.value));
    assert_false(wire_get_field(&field.value, &inner));
    assert_true(wire_get_field(&reader, &field));
    assert_int_equal(field.value.left_bytes, 0);
    assert_false(wire_get_field(&reader, &field));
    assert_true(wire_reader_ended(&reader));
}

static void wire_field_cut_short_fails_the_reader(void **state)
{
    uint8_t bytes[32];
    struct wire_writer writer = wire_writer_make(bytes, sizeof(bytes));
    struct wire_field field;
    size_t begin = wire_put_field_begin(&writer, 3);

    (void)state;
    wire_put_u64(&writer, 1);
    wire_put_field_end(&writer, begin);
    for (size_t len = 1; len < writer.len_bytes; len++) {
        struct wire_reader reader = wire_reader_make(bytes, len);

        assert_false(wire_get_field(&reader, &field));
        assert_false(wire_reader_ended(&reader));
    }
}

static void wire_checksum_is_xxhash32(void **state)
{
    (void)state;
    assert_int_equal(wire_checksum("", 0), 0x02cc5d05);
    assert_int_equal(wire_checksum("abc", 3), 0x32d153ff);
}

static void wire_checksum_but_takes_the_hole_as_zero(void **state)
{
    struct test_random random = test_random_make(test_seed());
    uint8_t bytes[100];

    (void)state;
    for (size_t len = 4; len <= sizeof(bytes); len++) {
        for (size_t hole = 0; hole + 4 <= len; hole++) {
            uint32_t sum;

            test_random_fill(&random, bytes, sizeof(bytes));
            sum = wire_checksum_but(bytes, len, hole);
            memset(bytes + hole, 0, 4);
            assert_int_equal(sum, wire_checksum(bytes, len));
        }
    }
}

int main(void)
{
    static const struct CMUnitTest tests[] = {
        cmocka_unit_test(wire_numbers_are_little_endian),
        cmocka_unit_test(wire_reader_stays_failed_after_an_overrun),
        cmocka_unit_test(wire_writer_stays_failed_and_writes_nothing_past_the_end),
        cmocka_unit_test(wire_counting_writer_finds_the_size),
        cmocka_unit_test(wire_fields_nest_and_come_back),
        cmocka_unit_test(wire_field_cut_short_fails_the_reader),
        cmocka_unit_test(wire_checksum_is_xxhash32),
        cmocka_unit_test(wire_checksum_but_takes_the_hole_as_zero),
    };

    return cmocka_run_group_tests_name("wire", tests, NULL, NULL);
}
