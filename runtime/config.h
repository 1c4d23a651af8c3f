/*
 * config.h - every setting of the library, in one table.
 *
 * A setting is a key of the settings file and the variable KVF_<KEY> of the environment. Values
 * come from, the later wins: the default, the file's maps `all`, `context` or `generation`,
 * `instances.NAME`, the environment. Absent means the default; present but wrong stops the start.
 *
 * Use, on rank 0 for each instance in turn: settings_defaults(), settings_load_yaml_file(),
 * settings_apply_env(SETTINGS_ENV_ALL), settings_check(), settings_encode() and broadcast; on each
 * rank settings_decode() of its instance, then settings_apply_env(SETTINGS_ENV_RANK) for the keys
 * that may differ by rank. Ranks compare settings_env_hash().
 *
 * settings_load_yaml_*() are in config_yaml.c, which is glue; all else is core. The environment is
 * read in config.c alone. docs/settings.md is compared with the table by a test.
 */
#ifndef KVF_CONFIG_H
#define KVF_CONFIG_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

#include <kvferry/kvferry.h>

#include "check.h"
#include "wire.h"

#define SETTINGS_TEXT_BYTES 160 /* value of a text setting, with the final 0 */
#define SETTINGS_INT_MAX 2147483647u
#define SETTINGS_UINT_MAX 4294967295u

enum settings_progress { SETTINGS_PROGRESS_THREAD, SETTINGS_PROGRESS_CALLER };
enum settings_release_policy { SETTINGS_RELEASE_WAIT, SETTINGS_RELEASE_LEGACY };
enum settings_writer_silence { SETTINGS_SILENCE_STRAND, SETTINGS_SILENCE_RELEASE };
enum settings_pin { SETTINGS_PIN_AUTO, SETTINGS_PIN_OFF };
enum settings_group_loss { SETTINGS_GROUP_FAIL_STOP, SETTINGS_GROUP_REGROUP };

/*
 * The table: X(KIND, key, place, default, min, max, unit, equal, choices, doc).
 *
 * KIND    U64 BOOL BYTES ENUM LIST TEXT, or DEAD: accepted, without effect. Field: see below
 * place   TOP, or BOUNCE: inside the file's map agent_bounce_params
 * default as it would be written in the file
 * min max of U64 and BYTES; 0 0 otherwise
 * equal   ALL ranks, INSTANCE: equal inside one, RANK: may differ by rank
 * choices of ENUM (value = index) and LIST (value = mask of 1 << (index + 1), as enum kvf_path)
 */
#define SETTINGS_LIST(X) \
    /* progress */ \
    X(ENUM, progress, TOP, "thread", 0, 0, "", INSTANCE, "thread|caller", \
      "who steps the library: a thread of its own, or the engine by kvf_progress()") \
    X(U64, progress_spin_us, TOP, "20", 0, 1000000, "us", RANK, "", \
      "how long the progress thread looks for work before it sleeps") \
    X(ENUM, pin, TOP, "auto", 0, 0, "", RANK, "auto|off", \
      "auto: where the rank is bound to several cores, the library's threads keep off the one " \
      "that the engine published on; off: they run wherever the rank may") \
    X(BYTES, copy_step_bytes, TOP, "256KiB", 4096, 1073741824, "bytes", RANK, "", \
      "most bytes that one step copies where the engine steps the library") \
    X(ENUM, log_level, TOP, "info", 0, 0, "", RANK, "error|warn|info|debug", \
      "lines beyond this level are not made") \
    /* ceilings, taken at open */ \
    X(U64, requests_max, TOP, "1024", 1, 65536, "requests", INSTANCE, "", \
      "live requests of a rank; one more is BUSY") \
    X(U64, blocks_max, TOP, "262144", 1, 16777216, "blocks", INSTANCE, "", \
      "blocks in the lists of all live requests of a rank; beyond it BUSY") \
    X(BYTES, asks_bytes_max, TOP, "4GiB", 1048576, 1099511627776, "bytes", INSTANCE, "", \
      "context: most memory for what all receivers may ask at once, by their requests_max and " \
      "blocks_max; beyond it publishing fails") \
    X(BYTES, early_bytes_max, TOP, "16MiB", 65536, 1073741824, "bytes", INSTANCE, "", \
      "memory for control messages that arrive before their turn, all peers together") \
    /* paths */ \
    X(ENUM, path, TOP, "auto", 0, 0, "", INSTANCE, "auto|mapped|direct|bounce|twosided", \
      "forces one rung of the ladder; where it cannot be had the request fails") \
    X(LIST, paths, TOP, "mapped,direct,bounce,twosided", 0, 0, "", INSTANCE, \
      "mapped|direct|bounce|twosided", "rungs that may be used") \
    X(U64, direct_window, TOP, "64", 1, 65536, "puts", INSTANCE, "", \
      "puts of the direct rung in flight to one peer") \
    X(TEXT, control_transports, TOP, "", 0, 0, "", INSTANCE, "", \
      "UCX transports for control messages; empty = all but CUDA") \
    X(TEXT, near_transports, TOP, "", 0, 0, "", INSTANCE, "", \
      "UCX transports for data inside a node; empty = shared memory and CUDA IPC") \
    X(TEXT, far_transports, TOP, "", 0, 0, "", INSTANCE, "", \
      "UCX transports for data between nodes; empty = all but CUDA IPC") \
    X(U64, connect_timeout_ms, TOP, "60000", 100, 3600000, "ms", ALL, "", \
      "bound of open, publish and of each step of connecting") \
    X(U64, warm_up_ms, TOP, "1000", 0, 60000, "ms", INSTANCE, "", \
      "how long publishing may map peers' pages ahead of their first use; 0 = not at all") \
    /* transfer */ \
    X(BOOL, self_check, TOP, "false", 0, 0, "", ALL, "", \
      "writers send a digest of what they wrote, readers compare their pages; costs a pass over " \
      "all bytes on both sides") \
    X(U64, kv_transfer_timeout_ms, TOP, "60000", 1, SETTINGS_INT_MAX, "ms", INSTANCE, "", \
      "T: after it a request fails, and silent writers are given up") \
    X(BOOL, enable_pipelined_transfer, TOP, "false", 0, 0, "", INSTANCE, "", \
      "a request may be sent in several windows") \
    X(U64, max_tokens_in_buffer, TOP, "0", 0, SETTINGS_INT_MAX, "tokens", INSTANCE, "", \
      "generation: cap on prompt tokens being received at once, with pp > 1 or synchronous " \
      "receives; 0 = no cap") \
    X(ENUM, release_policy, TOP, "wait", 0, 0, "", INSTANCE, "wait|legacy", \
      "wait: pages return when no writer can reach them; legacy: as soon as the request ended") \
    X(ENUM, writer_silence, TOP, "strand", 0, 0, "", INSTANCE, "strand|release", \
      "pages of a writer silent for T: kept, or released with a warning") \
    X(U64, request_info_ttl_ms, TOP, "0", 0, SETTINGS_INT_MAX, "ms", INSTANCE, "", \
      "how long an ended or unopened request is remembered; 0 = max(120000, 2 T + 10000)") \
    X(U64, tombstones_max, TOP, "65536", 1, 16777216, "requests", INSTANCE, "", \
      "ended requests that are remembered") \
    X(U64, hold_cap_ms, TOP, "5000", 1, SETTINGS_INT_MAX, "ms", INSTANCE, "", \
      "longest hold of a failure whose chunks are unanswered") \
    /* peers and groups */ \
    X(U64, heartbeat_interval_ms, TOP, "500", 10, 60000, "ms", INSTANCE, "", \
      "a peer with open work hears from this rank at least this often") \
    X(U64, peer_lost_ms, TOP, "5000", 40, SETTINGS_INT_MAX, "ms", INSTANCE, "", \
      "a peer silent for so long is lost; at least 4 heartbeats") \
    X(U64, sweep_lag, TOP, "1", 0, 64, "iterations", INSTANCE, "", \
      "iterations between posting a sweep and acting on it; with pp > 1 the pipeline depth") \
    X(U64, sweep_warn_ms, TOP, "1000", 10, SETTINGS_INT_MAX, "ms", INSTANCE, "", \
      "a sweep slower than this is logged") \
    X(U64, sweep_deadline_ms, TOP, "5000", 11, SETTINGS_INT_MAX, "ms", INSTANCE, "", \
      "a sweep slower than this ends the group if a member is silent too") \
    X(ENUM, group_loss, TOP, "fail_stop", 0, 0, "", INSTANCE, "fail_stop|regroup", \
      "what a lost rank means for its instance") \
    X(U64, stall_step_max_ms, TOP, "250", 10, 10000, "ms", INSTANCE, "", \
      "most time that one pass may count, so that a stopped process keeps its deadlines") \
    X(U64, finalize_step_ms, TOP, "5000", 1, SETTINGS_INT_MAX, "ms", INSTANCE, "", \
      "bound of each step of close") \
    /* bounce */ \
    X(U64, kv_cache_bounce_size_mb, TOP, "0", 0, 1048576, "MiB", INSTANCE, "", \
      "size of the bounce arena of a rank; 0 = no bounce") \
    X(BYTES, max_chunk_size, BOUNCE, "32MiB", 1, SETTINGS_UINT_MAX, "bytes", INSTANCE, "", \
      "largest chunk; a peer must have the same after clamping to the arena") \
    X(BYTES, arena_allocation_granularity, BOUNCE, "1MiB", 1, SETTINGS_UINT_MAX, "bytes", \
      INSTANCE, "", "smallest region of the arena; rounded up to a power of two") \
    X(BYTES, max_average_descriptor_size, BOUNCE, "16KiB", 0, SETTINGS_UINT_MAX, "bytes", \
      INSTANCE, "", "writes with larger fragments do not bounce; 0 = all sizes may") \
    X(U64, min_descriptor_count, BOUNCE, "1024", 0, SETTINGS_UINT_MAX, "fragments", INSTANCE, "", \
      "writes with fewer fragments do not bounce") \
    X(U64, max_inflight_chunks_per_request, BOUNCE, "8", 1, SETTINGS_UINT_MAX, "chunks", INSTANCE, \
      "", "chunks of one write between gather and answer") \
    X(U64, copy_stream_count, BOUNCE, "8", 1, 1024, "streams", RANK, "", \
      "gathers and scatters at the same time") \
    X(U64, scatter_worker_count, BOUNCE, "4", 1, 1024, "threads", RANK, "", \
      "threads that launch scatters and answer for them") \
    X(U64, request_timeout_ms, BOUNCE, "30000", 1, SETTINGS_INT_MAX, "ms", INSTANCE, "", \
      "R: a write without progress for so long fails; a peer must have the same") \
    X(BOOL, disable_fabric_memory, BOUNCE, "false", 0, 0, "", INSTANCE, "", \
      "the arena is not allocated as fabric memory") \
    X(BOOL, enable_eager_gather, BOUNCE, "true", 0, 0, "", INSTANCE, "", \
      "gather before the credit has come") \
    X(BOOL, use_zero_copy_arguments, BOUNCE, "true", 0, 0, "", INSTANCE, "", \
      "kernels read their arguments from host memory") \
    /* accepted, without effect */ \
    X(DEAD, agent_bounce_buffer_enable, TOP, "false", 0, 0, "", INSTANCE, "", \
      "deprecated and ignored: kv_cache_bounce_size_mb alone switches the bounce") \
    X(DEAD, kv_transfer_sender_future_timeout_ms, TOP, "1000", 0, 0, "ms", INSTANCE, "", \
      "no effect: nothing polls") \
    X(DEAD, kv_transfer_poll_interval_ms, TOP, "5000", 0, 0, "ms", INSTANCE, "", \
      "no effect: nothing polls")

/* Fields by kind. */
#define SETTINGS_FIELD_U64(key) uint64_t key;
#define SETTINGS_FIELD_BYTES(key) uint64_t key;
#define SETTINGS_FIELD_BOOL(key) bool key;
#define SETTINGS_FIELD_ENUM(key) uint32_t key;
#define SETTINGS_FIELD_LIST(key) uint32_t key;
#define SETTINGS_FIELD_TEXT(key) char key[SETTINGS_TEXT_BYTES];
#define SETTINGS_FIELD_DEAD(key)

enum settings_index {
#define SETTINGS_X(kind, key, ...) SETTINGS_I_##key,
    SETTINGS_LIST(SETTINGS_X)
#undef SETTINGS_X
        SETTINGS_COUNT
};

/* Where a value came from; later ones win. */
enum settings_origin {
    SETTINGS_FROM_DEFAULT,
    SETTINGS_FROM_ALL,      /* the file's map `all` */
    SETTINGS_FROM_SIDE,     /* `context` or `generation` */
    SETTINGS_FROM_INSTANCE, /* `instances.NAME` */
    SETTINGS_FROM_ENV,
};

/* One rank's settings. Plain data, may be copied. Each field has the name of its key. */
struct kvf_settings {
#define SETTINGS_X(kind, key, ...) SETTINGS_FIELD_##kind(key)
    SETTINGS_LIST(SETTINGS_X)
#undef SETTINGS_X
    bool has_bounce_params;          /* agent_bounce_params or a variable of it is present */
    uint8_t origins[SETTINGS_COUNT]; /* enum settings_origin */
    uint32_t lines[SETTINGS_COUNT];  /* in the file; 0 = not from it, or not known */
};

enum settings_kind {
    SETTINGS_U64,
    SETTINGS_BYTES,
    SETTINGS_BOOL,
    SETTINGS_ENUM,
    SETTINGS_LIST_OF,
    SETTINGS_TEXT,
    SETTINGS_DEAD,
};
enum settings_place { SETTINGS_TOP, SETTINGS_BOUNCE };
enum settings_equal { SETTINGS_EQUAL_ALL, SETTINGS_EQUAL_INSTANCE, SETTINGS_EQUAL_RANK };

/* One row of the table. */
struct settings_row {
    const char *key;
    enum settings_kind kind;
    enum settings_place place;
    const char *default_text;
    uint64_t min;
    uint64_t max;
    const char *unit;
    enum settings_equal equal;
    const char *choices;
    const char *doc;
    size_t offset; /* of the field; DEAD has none */
};

/* `index` < SETTINGS_COUNT. */
const struct settings_row *settings_row(unsigned index);
/* Index of a key, or SETTINGS_COUNT. */
unsigned settings_find(const char *key);
/* "KVF_" and the key in capitals; 64 bytes are enough for all. */
void settings_variable(const struct settings_row *row, char *name_out, size_t name_bytes);
/* What a row takes: "a whole number from 0 to 64". */
void settings_want_text(const struct settings_row *row, char *text_out, size_t text_bytes);
/* Edit distance; also for naming the nearest option. At most 63 characters of each count. */
unsigned settings_distance(const char *left, const char *right);

#define SETTINGS_NOTES_MAX 16
#define SETTINGS_NOTE_BYTES 240
#define SETTINGS_ERROR_BYTES 512

/* What is to be logged, once a process and on rank 0: level warn unless `event` is "". */
struct settings_note {
    char event[8]; /* "W01"; "" = info */
    char text[SETTINGS_NOTE_BYTES];
};

/* What the calls below have to say. Start zeroed; one error, several notes. */
struct settings_report {
    char error[SETTINGS_ERROR_BYTES]; /* one line; "" = none */
    uint32_t note_count;              /* more than fit are dropped */
    struct settings_note notes[SETTINGS_NOTES_MAX];
};

/* Adds a note unless the same text is there; a full report drops it. */
void settings_note(struct settings_report *report, const char *event, const char *format, ...)
    KVF_PRINTF(3, 4);
/* Writes the error, unless there is one already; returns KVF_E_CONFIG. */
enum kvf_status settings_fail(struct settings_report *report, const char *format, ...)
    KVF_PRINTF(2, 3);

/* The error about an unknown key, with the nearest known one. */
enum kvf_status settings_fail_unknown(struct settings_report *report, const char *where,
                                      const char *key);

/* For whom a file is read. */
struct settings_target {
    enum kvf_side side;
    const char *instance;         /* name of the instance */
    const char *const *instances; /* all names of the topology: others are errors */
    uint32_t instance_count;
};

/* What combinations are judged by. */
struct settings_facts {
    enum kvf_side side;
    bool has_bounce; /* this build has the bounce */
    uint32_t pp_size;
    uint32_t cp_size;
    uint32_t beam_width;
    bool ownership_bridge; /* the model's layout flag */
};

void settings_defaults(struct kvf_settings *settings_out);

/*
 * Sets one key from a text as written in a file or variable. `where` is put in front of an error
 * ("kvferry.yaml:12: ", or "").
 * Errors: E_CONFIG, in the words of docs/settings.md; unknown key: the nearest known one is named.
 */
enum kvf_status settings_set(struct kvf_settings *settings, const char *key, const char *value,
                             enum settings_origin origin, const char *where,
                             struct settings_report *report);

/* Reads text of a file; `name` is used in errors. Errors: E_CONFIG, E_NOMEM. */
enum kvf_status settings_load_yaml_text(struct kvf_settings *settings, const char *text,
                                        const char *name, const struct settings_target *target,
                                        struct settings_report *report);
/* As above. A file that cannot be read is E_CONFIG. At most 1 MiB. */
enum kvf_status settings_load_yaml_file(struct kvf_settings *settings, const char *path,
                                        const struct settings_target *target,
                                        struct settings_report *report);

enum settings_env_set {
    SETTINGS_ENV_ALL,  /* every KVF_ variable; an unknown one is an error */
    SETTINGS_ENV_RANK, /* only the keys that may differ by rank; all others are not looked at */
};

/* `environment` is NAME=VALUE strings up to a NULL; NULL = the process's own. Errors: E_CONFIG. */
enum kvf_status settings_apply_env(struct kvf_settings *settings, const char *const *environment,
                                   enum settings_env_set set, struct settings_report *report);

/*
 * Hash of all KVF_ variables but those of per-rank keys, in any order. Ranks whose hash differs
 * from rank 0's were started with different settings.
 */
uint64_t settings_env_hash(const char *const *environment);

/* Value of KVF_TEST_<name> in builds with test hooks, NULL otherwise. */
const char *settings_test_value(const char *name);

/* Ranges that hang on each other, and on the facts; derives nothing but what is clamped (W05). */
enum kvf_status settings_check(struct kvf_settings *settings, const struct settings_facts *facts,
                               struct settings_report *report);

/* The part of it that is known when a layout is: a cache with an ownership bridge never bounces. */
enum kvf_status settings_check_bridge(const struct kvf_settings *settings,
                                      struct settings_report *report);

/* max(120 s, 2 T + 10 s) unless request_info_ttl_ms is set. */
uint64_t settings_info_ttl_ms(const struct kvf_settings *settings);

/* Everything, origins included. */
void settings_encode(const struct kvf_settings *settings, struct wire_writer *writer);
/* Errors: E_DECODE (also for another release's table). */
enum kvf_status settings_decode(struct kvf_settings *settings_out, struct wire_reader *reader);

/* The value of one row as it would be written in a file, and where it came from. */
void settings_value_text(const struct kvf_settings *settings, unsigned index, char *text_out,
                         size_t text_bytes);
void settings_origin_text(const struct kvf_settings *settings, unsigned index, char *text_out,
                          size_t text_bytes);

/* A line for each setting: key, value, where it came from. */
void settings_print(const struct kvf_settings *settings, FILE *file);

/* The table of docs/settings.md. */
void settings_print_table(FILE *file);

#endif /* KVF_CONFIG_H */
