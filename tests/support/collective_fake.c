/*
 * collective_fake.c - see collective_fake.h.
 */
#include "collective_fake.h"

#include <stdlib.h>
#include <string.h>

#define WORDS_MAX 64u

struct fake_seat {
    struct collective table;
    struct fake_board *board;
    uint32_t rank;
    uint32_t started; /* collectives */
    uint32_t seen;    /* completed by this rank */
    bool held, muted, abandoned;
    enum kvf_status fail;
    uint8_t *gathered; /* [slots][ranks * len_max] */
    uint8_t words[WORDS_MAX][COLLECTIVE_WORD_BYTES];
    uint32_t word_first, word_count;
};

struct fake_board {
    uint32_t ranks, slots;
    size_t len_max_bytes;
    uint32_t ring;   /* numbers that are kept */
    uint8_t *given;  /* [ring][ranks][len_max] */
    size_t *lengths; /* [ring][ranks] */
    uint32_t faults;
    uint64_t bytes;
    struct fake_seat *seats;
};

static void *zeroed(size_t count, size_t size)
{
    void *memory = calloc(count, size);

    if (memory == NULL)
        abort();
    return memory;
}

static uint8_t *given_at(const struct fake_board *board, uint32_t number, uint32_t rank)
{
    return board->given +
           ((size_t)(number % board->ring) * board->ranks + rank) * board->len_max_bytes;
}

static size_t *length_at(const struct fake_board *board, uint32_t number, uint32_t rank)
{
    return &board->lengths[(size_t)(number % board->ring) * board->ranks + rank];
}

/* A rank is ahead of another by at most the slots: more has overwritten what is still wanted. */
static void note_faults(struct fake_board *board, const struct fake_seat *seat, size_t len_bytes)
{
    for (uint32_t r = 0; r < board->ranks; r++) {
        const struct fake_seat *other = &board->seats[r];

        if (other->started > seat->started && *length_at(board, seat->started, r) != len_bytes)
            board->faults++;
    }
    if (seat->started - seat->seen >= board->slots)
        board->faults++;
}

static enum kvf_status fake_start(void *self, uint32_t slot, const void *bytes, size_t len_bytes)
{
    struct fake_seat *seat = self;
    struct fake_board *board = seat->board;

    if (slot != seat->started % board->slots || len_bytes > board->len_max_bytes || seat->abandoned)
        board->faults++;
    note_faults(board, seat, len_bytes);
    memcpy(given_at(board, seat->started, seat->rank), bytes, len_bytes);
    *length_at(board, seat->started, seat->rank) = len_bytes;
    board->bytes += len_bytes;
    seat->started++;
    return KVF_OK;
}

static bool all_started(const struct fake_board *board, uint32_t number)
{
    for (uint32_t r = 0; r < board->ranks; r++)
        if (board->seats[r].started <= number)
            return false;
    return true;
}

static enum kvf_status fake_test(void *self, uint32_t slot)
{
    struct fake_seat *seat = self;
    struct fake_board *board = seat->board;
    size_t len_bytes = *length_at(board, seat->seen, seat->rank);
    enum kvf_status fail = seat->fail;

    seat->fail = KVF_OK;
    if (fail != KVF_OK)
        return fail;
    if (slot != seat->seen % board->slots || seat->abandoned)
        board->faults++;
    if (seat->held || !all_started(board, seat->seen))
        return KVF_AGAIN;
    for (uint32_t r = 0; r < board->ranks; r++)
        memcpy(seat->gathered + (size_t)slot * board->ranks * board->len_max_bytes + r * len_bytes,
               given_at(board, seat->seen, r), len_bytes);
    seat->seen++;
    return KVF_OK;
}

static const uint8_t *fake_result(void *self, uint32_t slot)
{
    const struct fake_seat *seat = self;

    return seat->gathered + (size_t)slot * seat->board->ranks * seat->board->len_max_bytes;
}

static void fake_tell(void *self, const uint8_t word[COLLECTIVE_WORD_BYTES])
{
    struct fake_seat *seat = self;
    struct fake_board *board = seat->board;

    for (uint32_t r = 0; r < board->ranks; r++) {
        struct fake_seat *other = &board->seats[r];

        if (r != seat->rank && other->word_count < WORDS_MAX)
            memcpy(other->words[(other->word_first + other->word_count++) % WORDS_MAX], word,
                   COLLECTIVE_WORD_BYTES);
    }
}

static bool fake_hear(void *self, uint8_t word_out[COLLECTIVE_WORD_BYTES])
{
    struct fake_seat *seat = self;

    if (seat->word_count == 0 || seat->muted)
        return false;
    memcpy(word_out, seat->words[seat->word_first], COLLECTIVE_WORD_BYTES);
    seat->word_first = (seat->word_first + 1) % WORDS_MAX;
    seat->word_count--;
    return true;
}

static void fake_rest(void *self, uint32_t times)
{
    (void)self;
    (void)times;
}

static void fake_abandon(void *self)
{
    ((struct fake_seat *)self)->abandoned = true;
}

static void fake_close(void *self)
{
    (void)self;
}

struct fake_board *fake_board_open(uint32_t ranks, uint32_t slots, size_t len_max_bytes)
{
    struct fake_board *board = zeroed(1, sizeof(*board));

    board->ranks = ranks;
    board->slots = slots;
    board->len_max_bytes = len_max_bytes;
    board->ring = 2 * slots + 1;
    board->given = zeroed((size_t)board->ring * ranks, len_max_bytes);
    board->lengths = zeroed((size_t)board->ring * ranks, sizeof(*board->lengths));
    board->seats = zeroed(ranks, sizeof(*board->seats));
    for (uint32_t r = 0; r < ranks; r++) {
        struct fake_seat *seat = &board->seats[r];

        seat->board = board;
        seat->rank = r;
        seat->gathered = zeroed((size_t)slots * ranks, len_max_bytes);
        seat->table = (struct collective){
            .size = sizeof(seat->table),
            .self = seat,
            .rank = r,
            .rank_count = ranks,
            .slots = slots,
            .len_max_bytes = len_max_bytes,
            .start = fake_start,
            .test = fake_test,
            .result = fake_result,
            .tell = fake_tell,
            .hear = fake_hear,
            .rest = fake_rest,
            .abandon = fake_abandon,
            .close = fake_close,
        };
    }
    return board;
}

void fake_board_close(struct fake_board *board)
{
    for (uint32_t r = 0; r < board->ranks; r++)
        free(board->seats[r].gathered);
    free(board->seats);
    free(board->lengths);
    free(board->given);
    free(board);
}

struct collective *fake_board_rank(struct fake_board *board, uint32_t rank)
{
    return &board->seats[rank].table;
}

void fake_board_hold(struct fake_board *board, uint32_t rank, bool hold)
{
    board->seats[rank].held = hold;
}

void fake_board_mute(struct fake_board *board, uint32_t rank, bool mute)
{
    board->seats[rank].muted = mute;
}

void fake_board_fail(struct fake_board *board, uint32_t rank, enum kvf_status status)
{
    board->seats[rank].fail = status;
}

uint32_t fake_board_started(const struct fake_board *board, uint32_t rank)
{
    return board->seats[rank].started;
}

bool fake_board_complete(const struct fake_board *board, uint32_t rank)
{
    const struct fake_seat *seat = &board->seats[rank];

    return seat->started > seat->seen && !seat->held && all_started(board, seat->seen);
}

uint32_t fake_board_faults(const struct fake_board *board)
{
    return board->faults;
}

uint64_t fake_board_bytes(const struct fake_board *board)
{
    return board->bytes;
}
