/* plan_source.c - see plan_source.h. */
#include "plan_source.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "options.h"
#include "say.h"
#include "topology_yaml.h"

/* Pieces that one request may be cut into. */
#define PIECES_MAX ((uint64_t)1 << 20)

static const char *const side_names[2] = {"context", "generation"};

int plan_source_refuse(enum kvf_status status, const struct geo_text *text)
{
    const char *what = text->s[0] != '\0' ? text->s : kvf_status_text(status);

    if ((status <= KVF_E_WIRE_VERSION && status >= KVF_E_REQ_AUX) || status == KVF_E_TOO_LARGE ||
        status == KVF_E_INVAL) {
        fprintf(stderr, "%s: %s\n", kvf_status_name(status), what);
        return EXIT_REFUSED;
    }
    say("%s", what);
    return EXIT_USAGE;
}

/* ---- a file --------------------------------------------------------------------------------- */

/* Options that a file answers by itself. */
static const char *plan_source_clash(const struct plan_options *options)
{
    const struct {
        bool given;
        const char *name;
    } clashes[] = {
        {options->topology != NULL, "topology"},
        {options->instances[0] != NULL, "ctx"},
        {options->instances[1] != NULL, "gen"},
        {options->model != NULL, "model"},
        {options->models[0] != NULL, "ctx-model"},
        {options->models[1] != NULL, "gen-model"},
        {options->scale_layers != 0, "scale-layers"},
        {options->tokens != 0, "tokens"},
        {options->cached != 0, "cached"},
        {options->piece_tokens != 0, "piece-tokens"},
        {options->sender_group != 0, "sender-dp"},
        {options->group_unknown, "dp-unknown"},
        {options->settings != NULL, "settings"},
    };

    for (size_t i = 0; i < sizeof(clashes) / sizeof(clashes[0]); i++) {
        if (clashes[i].given) {
            return clashes[i].name;
        }
    }
    return NULL;
}

static int plan_source_file(const struct plan_options *options, struct plan_source *source)
{
    const char *clash = plan_source_clash(options);
    struct geo_text text = {""};
    enum kvf_status status;

    if (clash != NULL) {
        say("--%s does not go with --geometry: the file says it", clash);
        return EXIT_USAGE;
    }
    status = geometry_dump_load(options->geometry, &source->dump, &text);
    if (status == KVF_E_NOMEM || status == KVF_E_TOO_LARGE) {
        say("--geometry %s: %s", options->geometry, kvf_status_text(status));
        return EXIT_USAGE;
    }
    if (status != KVF_OK) {
        say("--geometry %s%s%s",
            strstr(text.s, options->geometry) == text.s ? "" : options->geometry,
            strstr(text.s, options->geometry) == text.s ? "" : ": ", text.s);
        return EXIT_USAGE;
    }
    settings_defaults(&source->settings[0]);
    settings_defaults(&source->settings[1]);
    return EXIT_RIGHT;
}

/* ---- a topology and models ------------------------------------------------------------------ */

/* Number of the instance that plays a side: the one of that name, or the first. */
static bool plan_source_instance(const struct kvf_topology *topology, enum kvf_side side,
                                 const char *name, uint32_t *instance_out)
{
    const char *names[KVF_INSTANCES_MAX];
    const char *near;
    size_t count = 0;

    for (uint32_t i = 0; i < topology->instance_count; i++) {
        const struct kvf_instance *instance = &topology->instances[i];

        if (instance->side == side && (name == NULL || strcmp(name, instance->name) == 0)) {
            *instance_out = i;
            return true;
        }
        if (instance->side == side && count < KVF_INSTANCES_MAX) {
            names[count++] = instance->name;
        }
    }
    near = name != NULL ? options_nearest(name, names, count) : NULL;
    if (near != NULL) {
        say("no %s instance \"%.60s\"; the nearest is %s", side_names[side], name, near);
    } else {
        say("no %s instance \"%.60s\" in the topology", side_names[side], name != NULL ? name : "");
    }
    return false;
}

static bool plan_source_settings(const struct plan_options *options,
                                 const struct plan_dump_params *params, enum kvf_side side,
                                 struct plan_source *source)
{
    const struct kvf_instance *instances = source->topology->instances;
    const struct kvf_instance *instance = &instances[params->instances[side]];
    const char *names[KVF_INSTANCES_MAX];
    const struct settings_target target = {.side = side,
                                           .instance = instance->name,
                                           .instances = names,
                                           .instance_count = source->topology->instance_count};
    /* The verdict of the gate is asked for, whether this build has the bounce or not. */
    const struct settings_facts facts = {
        .side = side,
        .has_bounce = true,
        .pp_size = instance->pp_size,
        .cp_size = 1,
        .beam_width = 1,
        .ownership_bridge = source->models[side].facts.ownership_bridge,
    };
    struct kvf_settings *settings = &source->settings[side];
    struct settings_report report = {0};
    enum kvf_status status = KVF_OK;

    for (uint32_t i = 0; i < source->topology->instance_count && i < KVF_INSTANCES_MAX; i++) {
        names[i] = instances[i].name;
    }
    settings_defaults(settings);
    if (options->settings != NULL) {
        status = settings_load_yaml_file(settings, options->settings, &target, &report);
    }
    if (status == KVF_OK) {
        status = settings_apply_env(settings, NULL, SETTINGS_ENV_ALL, &report);
    }
    if (status == KVF_OK) {
        status = settings_check(settings, &facts, &report);
    }
    for (uint32_t n = 0; status == KVF_OK && n < report.note_count; n++) {
        say("%s: %s", instance->name, report.notes[n].text);
    }
    if (status != KVF_OK) {
        say("%s", report.error);
    }
    return status == KVF_OK;
}

static bool plan_source_wanted(const struct plan_options *options)
{
    if (options->topology == NULL) {
        say("nothing to plan: want --topology with --model and --tokens, or --geometry");
    } else if (options->model == NULL &&
               (options->models[0] == NULL || options->models[1] == NULL)) {
        say("--model is missing");
    } else if (options->tokens == 0) {
        say("--tokens is missing; want a whole number from 1 to %u", PLAN_DUMP_TOKENS_MAX);
    } else if (options->cached > options->tokens) {
        say("--cached is %" PRIu64 "; want at most --tokens, which is %" PRIu64, options->cached,
            options->tokens);
    } else {
        return true;
    }
    return false;
}

/* Numbers whose range hangs on the topology and the models. */
static bool plan_source_ranges(const struct plan_options *options, struct plan_source *source,
                               struct plan_dump_params *params)
{
    const struct kvf_instance *from = &source->topology->instances[params->instances[0]];
    const struct kvf_instance *to = &source->topology->instances[params->instances[1]];
    uint32_t block = source->models[0].facts.tokens_per_block;
    uint64_t receiver = 0;

    if (options->sender_group >= from->dp_size) {
        say("--sender-dp is %" PRIu64 "; %s has the dp groups 0 to %u", options->sender_group,
            from->name, from->dp_size - 1);
        return false;
    }
    if (options->receiver != NULL &&
        !options_whole(options->receiver, 0, to->tp_size * to->pp_size - 1, &receiver)) {
        say("--receiver is \"%.60s\"; %s has the ranks 0 to %u", options->receiver, to->name,
            to->tp_size * to->pp_size - 1);
        return false;
    }
    if (options->piece_tokens % block != 0 ||
        (options->piece_tokens > 0 && options->tokens / options->piece_tokens > PIECES_MAX)) {
        say("--piece-tokens is %" PRIu64 "; want a multiple of the block, which is %u, and at most "
            "%" PRIu64 " pieces",
            options->piece_tokens, block, PIECES_MAX);
        return false;
    }
    params->receiver = (uint32_t)receiver;
    return true;
}

static int plan_source_make(const struct plan_options *options, struct plan_source *source)
{
    char said[OPTIONS_TEXT_BYTES] = "";
    struct geo_text text = {""};
    struct plan_dump_params params = {
        .prompt_tokens = (uint32_t)options->tokens,
        .cached_tokens = (uint32_t)options->cached,
        .piece_tokens =
            (uint32_t)(options->piece_tokens < options->tokens ? options->piece_tokens : 0),
        .sender_group = (uint32_t)options->sender_group,
        .group_known = !options->group_unknown,
    };
    enum kvf_status status;

    if (!plan_source_wanted(options)) {
        return EXIT_USAGE;
    }
    if (!topology_load(options->topology, &source->topology, said)) {
        say("%s", said);
        return EXIT_USAGE;
    }
    params.topology = source->topology;
    for (int s = 0; s < 2; s++) {
        const char *name = options->models[s] != NULL ? options->models[s] : options->model;

        if (!model_load(name, (uint32_t)options->scale_layers, &source->models[s], said)) {
            say("%s", said);
            return EXIT_USAGE;
        }
        params.models[s] = &source->models[s].facts;
        if (!plan_source_instance(source->topology, (enum kvf_side)s, options->instances[s],
                                  &params.instances[s]) ||
            !plan_source_settings(options, &params, (enum kvf_side)s, source)) {
            return EXIT_USAGE;
        }
        params.bounces[s] = plan_dump_bounce(&source->settings[s]);
    }
    if (!plan_source_ranges(options, source, &params)) {
        return EXIT_USAGE;
    }
    source->is_made = true;
    status = plan_dump_open(&params, &source->dump, &text);
    return status == KVF_OK ? EXIT_RIGHT : plan_source_refuse(status, &text);
}

int plan_source_open(const struct plan_options *options, struct plan_source *source_out)
{
    int code;

    *source_out = (struct plan_source){0};
    code = options->geometry != NULL ? plan_source_file(options, source_out)
                                     : plan_source_make(options, source_out);
    if (code != EXIT_RIGHT) {
        plan_source_close(source_out);
    }
    return code;
}

void plan_source_close(struct plan_source *source)
{
    if (source->is_made) {
        plan_dump_close(source->dump);
    } else {
        geometry_dump_close(source->dump);
    }
    model_free(&source->models[0]);
    model_free(&source->models[1]);
    kvf_topology_free(source->topology);
    *source = (struct plan_source){0};
}
