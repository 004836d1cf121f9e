/* Least sums of squares over a box, for many supports of one size; see support_scores.c. */
#ifndef DPFAST_SUPPORT_SCORES_H
#define DPFAST_SUPPORT_SCORES_H

#include <stddef.h>
#include <stdint.h>

typedef struct {
    ptrdiff_t n_features;
    ptrdiff_t size;         /* of a support */
    const double *xx;       /* (n_features, n_features), symmetric */
    const double *xy;       /* (n_features,) */
    double ridge;           /* added to the diagonal */
    double tolerance;       /* duality gap that a score may have */
} dpfast_supports;

/* Doubles of workspace that dpfast_score_supports needs. */
ptrdiff_t dpfast_supports_workspace(ptrdiff_t size);

/* Score n_scores supports in lexicographic order from `support` (in, out: the one after the last, if there is one). */
void dpfast_score_supports(const dpfast_supports *problem, int64_t *support, ptrdiff_t n_scores, double *scores,
                           double *workspace);

#endif
