/*
 * tls.h - which UCX transports each of the three contexts may take, as a value for UCX_TLS. Pure.
 *
 * The user's own UCX_TLS is the outer limit: a negative list is appended to ours, a positive one is
 * filtered by class. Names that this UCX does not have are not named, since old releases print a
 * warning for each.
 *
 * May not include anything but base.
 */
#ifndef XFER_TLS_H
#define XFER_TLS_H

#include <stdbool.h>
#include <stddef.h>

#include <kvferry/kvf_status.h>

enum tls_context {
    TLS_NEAR,    /* shared memory alone, one kind of it, never cma */
    TLS_FAR,     /* network alone */
    TLS_CONTROL, /* both of them */
};
#define TLS_CONTEXT_COUNT 3

#define TLS_LIST_BYTES 512u

struct tls_facts {
    const char *user; /* value of UCX_TLS; NULL, "" and "all" = no limit */
    const char
        *present; /* text that has the name of each component of this UCX; NULL = none known */
    bool sysv;    /* System V shared memory works on this machine */
    bool cma;     /* cross-memory attach is allowed: this UCX offers it, if it has it */
};

/*
 * The kind of shared memory that near and control take: "sysv", "posix", or NULL (none is allowed).
 */
const char *tls_shared(const struct tls_facts *facts);

/*
 * Writes the value for a context (TLS_LIST_BYTES). E_NO_TRANSPORT: the user's list leaves it empty;
 * E_TOO_LARGE. `reason_out` (reason_bytes) then names the context and the value.
 */
enum kvf_status tls_list(const struct tls_facts *facts, enum tls_context context, char *list_out,
                         char *reason_out, size_t reason_bytes);

/* "near", "far", "control". */
const char *tls_context_name(enum tls_context context);

/* The n-th word of a comma list, without blanks, "^", "\" and what follows ":"; false = no more. */
bool tls_word(const char *list, size_t n, char *word_out, size_t word_bytes);

#endif /* XFER_TLS_H */
