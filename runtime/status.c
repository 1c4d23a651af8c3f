/* status.c - names, texts and scopes of kvf_status.h, and the version. */
#include <kvferry/kvferry.h>

struct status_row {
    int number;
    enum kvf_scope scope;
    const char *name;
    const char *text;
};

static const struct status_row status_rows[] = {
#define STATUS_X(name, number, scope, text) {number, KVF_SCOPE_##scope, #name, text},
    KVF_STATUS_LIST(STATUS_X)
#undef STATUS_X
};

static const struct status_row *status_find(enum kvf_status status)
{
    for (unsigned i = 0; i < sizeof(status_rows) / sizeof(status_rows[0]); i++)
        if (status_rows[i].number == (int)status)
            return &status_rows[i];
    return 0;
}

const char *kvf_status_text(enum kvf_status status)
{
    const struct status_row *row = status_find(status);

    return row == 0 ? "unknown status" : row->text;
}

const char *kvf_status_name(enum kvf_status status)
{
    const struct status_row *row = status_find(status);

    return row == 0 ? "unknown" : row->name;
}

enum kvf_scope kvf_status_scope(enum kvf_status status)
{
    const struct status_row *row = status_find(status);

    return row == 0 ? KVF_SCOPE_CALL : row->scope;
}

#define STATUS_STRING(number) #number
#define STATUS_VERSION(major, minor, patch) \
    STATUS_STRING(major) "." STATUS_STRING(minor) "." STATUS_STRING(patch)

const char *kvf_version(void)
{
    return STATUS_VERSION(KVF_VERSION_MAJOR, KVF_VERSION_MINOR, KVF_VERSION_PATCH);
}
