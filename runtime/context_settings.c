/*
 * context_settings.c - rank 0's settings reach all ranks, and nobody runs on others.
 */
#include <stdio.h>

#include "context_open.h"

/* One step's report, and the text that goes to the log. */
struct settings_step {
    struct settings_report report;
    const char **names;
};

static void settings_say(struct kvf *kvf, const struct settings_report *report)
{
    for (uint32_t n = 0; n < report->note_count; n++) {
        const struct settings_note *note = &report->notes[n];

        if (note->event[0] != 0)
            log_warn(&kvf->logger, note->event, "%s", note->text);
        else
            log_info(&kvf->logger, "%s", note->text);
    }
}

/* Settings that this release reads and cannot carry out yet: never ignored in silence. */
static void settings_idle(const struct kvf_settings *settings, struct settings_report *report)
{
    const struct {
        bool set;
        const char *key, *instead;
    } idle[] = {
        {settings->control_transports[0] != 0, "control_transports", "set UCX_TLS"},
        {settings->near_transports[0] != 0, "near_transports", "set UCX_TLS"},
        {settings->far_transports[0] != 0, "far_transports", "set UCX_TLS"},
        {settings->release_policy == SETTINGS_RELEASE_LEGACY, "release_policy: legacy",
         "pages return when no writer can reach them"},
        {settings->group_loss == SETTINGS_GROUP_REGROUP, "group_loss: regroup",
         "a lost rank ends its instance"},
    };

    for (size_t i = 0; i < sizeof(idle) / sizeof(idle[0]); i++)
        if (idle[i].set)
            settings_note(report, "W40", "%s has no effect in this release: %s", idle[i].key,
                          idle[i].instead);
}

/* One instance's settings, on rank 0. */
static enum kvf_status settings_of(struct kvf *kvf, const struct kvf_open_params *params,
                                   uint32_t instance, struct settings_step *step,
                                   struct kvf_settings *settings)
{
    const struct kvf_instance *where = &kvf->topology->instances[instance];
    const struct settings_target target = {
        .side = where->side,
        .instance = where->name,
        .instances = step->names,
        .instance_count = kvf->topology->instance_count,
    };
    const struct settings_facts facts = {
        .side = where->side,
        .has_bounce = false,
        .pp_size = where->pp_size,
        .cp_size = 1,
        .beam_width = params->beam_width == 0 ? 1 : params->beam_width,
    };
    enum kvf_status status = KVF_OK;

    settings_defaults(settings);
    if (params->settings_path != NULL)
        status = settings_load_yaml_file(settings, params->settings_path, &target, &step->report);
    if (status == KVF_OK && params->settings_text != NULL)
        status = settings_load_yaml_text(settings, params->settings_text, "settings", &target,
                                         &step->report);
    if (status == KVF_OK)
        status = settings_apply_env(settings, NULL, SETTINGS_ENV_ALL, &step->report);
    if (status == KVF_OK)
        status = settings_check(settings, &facts, &step->report);
    if (status == KVF_OK)
        settings_idle(settings, &step->report);
    return status;
}

/* All instances, encoded one after the other with their lengths. */
static enum kvf_status settings_collect(struct kvf *kvf, const struct kvf_open_params *params,
                                        struct settings_step *step, struct wire_writer *writer)
{
    for (uint32_t i = 0; i < kvf->topology->instance_count; i++) {
        struct kvf_settings settings;
        enum kvf_status status = settings_of(kvf, params, i, step, &settings);
        size_t field;

        if (status != KVF_OK)
            return status;
        field = wire_put_field_begin(writer, 1);
        settings_encode(&settings, writer);
        wire_put_field_end(writer, field);
    }
    return writer->failed ? KVF_E_TOO_LARGE : KVF_OK;
}

/* This rank's part of what rank 0 told. */
static enum kvf_status settings_pick(struct kvf *kvf, const struct world_gathered *told,
                                     struct settings_report *report)
{
    struct wire_reader reader = wire_reader_make(told->bytes, told->offsets[1]);
    struct wire_field field;

    for (uint32_t i = 0; wire_get_field(&reader, &field); i++)
        if (i == kvf->place.instance) {
            enum kvf_status status = settings_decode(&kvf->settings, &field.value);

            if (status != KVF_OK) {
                settings_fail(report, "the settings of rank 0 cannot be decoded: do all ranks run "
                                      "the same release?");
                return status;
            }
            return settings_apply_env(&kvf->settings, NULL, SETTINGS_ENV_RANK, report);
        }
    return KVF_E_DECODE;
}

enum kvf_status context_settings(struct kvf *kvf, const struct kvf_open_params *params)
{
    const struct kvf_heap *heap = &kvf->heap.table;
    uint32_t instances = kvf->topology->instance_count;
    size_t room = (size_t)instances * (sizeof(struct kvf_settings) * 2 + 64);
    struct settings_step *step = kvf_alloc(heap, 1, sizeof(*step));
    uint8_t *bytes = kvf_alloc(heap, room, 1);
    struct wire_writer writer = wire_writer_make(bytes, room);
    struct world_gathered told = {0};
    enum kvf_status status = KVF_OK;

    if (step != NULL)
        step->names = kvf_alloc(heap, instances, sizeof(*step->names));
    if (step == NULL || bytes == NULL || step->names == NULL)
        status = KVF_E_NOMEM;
    for (uint32_t i = 0; i < instances && status == KVF_OK; i++)
        step->names[i] = kvf->topology->instances[i].name;
    if (status == KVF_OK && kvf->world->rank == 0)
        status = settings_collect(kvf, params, step, &writer);
    status = context_agree(kvf, status, "rank 0 cannot read the settings",
                           step == NULL ? NULL : step->report.error);
    if (status == KVF_OK)
        status = kvf->world->gather(kvf->world->self, WORLD_ALL, bytes,
                                    kvf->world->rank == 0 ? writer.len_bytes : 0, &told);
    if (status == KVF_OK) {
        status = settings_pick(kvf, &told, &step->report);
        status = context_agree(kvf, status, "the settings of rank 0 cannot be taken over",
                               step->report.error);
    }
    if (status == KVF_OK)
        settings_say(kvf, &step->report);
    world_gathered_free(&told);
    if (step != NULL)
        kvf_release(heap, step->names);
    kvf_release(heap, bytes);
    kvf_release(heap, step);
    return status;
}
