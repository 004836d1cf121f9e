/* The score of a support G is the least value over |theta_j| <= 1 of

       f(theta) = theta'A theta/2 - g'theta,    A = (X'X + ridge I) on G,  g = X'y on G:

   half the sum of squared residuals (with the ridge), less that of theta = 0, which all supports share.

   Supports come in lexicographic order, so each shares all but its last few indices with the one before. A Cholesky
   factor grows by one row an index, and only the rows of the indices that changed are computed anew, in the same way
   whatever support came before: a score does not depend on where a range begins. Where the unconstrained minimiser lies
   in the box it is the answer. Else a principal pivoting method looks for the coordinates that end at a bound: all
   coordinates that violate the optimality conditions of the present guess change sides, or, when their number has not
   fallen for a while, only the first of them (Murty's rule, which cannot cycle in exact arithmetic).

   Every score is certified. f is convex, so with r the gradient at a theta of the box, no point of the box has a value
   below f(theta) - gap, gap = r'theta + ||r||_1. A score whose computed gap is above the tolerance is NaN, for the caller
   to compute exactly. No property of the matrix is relied on: a pivot that is not positive gives a NaN, hence no
   certificate. The bound on the error of what is certified stands in dpfast.solvers.best_subset.

   The caller checks shapes and finiteness. One thread a call; calls share nothing but inputs. */
#include <math.h>
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

enum { PATIENCE = 3, MAX_PIVOTS = 100 };

typedef struct {
    double *factor;    /* of the whole support, lower triangle by rows */
    double *forward;   /* factor^-1 g */
    double *own;       /* factor of the free coordinates */
    double *theta;     /* minimiser with some coordinates at bounds; the others may leave the box */
    double *clipped;   /* the same, in the box */
    double *gradient;
    double *solution;
    double *side;      /* -1, 0 or 1 a coordinate: at the lower bound, free, at the upper bound */
} work;

/* Doubles of workspace that dpfast_score_supports needs. */
static ptrdiff_t dpfast_supports_workspace(ptrdiff_t size) { return 2 * size * size + 6 * size; }

static work divided(double *workspace, ptrdiff_t size) {
    work w;
    w.factor = workspace;
    w.own = w.factor + size * size;
    w.forward = w.own + size * size;
    w.theta = w.forward + size;
    w.clipped = w.theta + size;
    w.gradient = w.clipped + size;
    w.solution = w.gradient + size;
    w.side = w.solution + size;
    return w;
}

static double entry(const dpfast_supports *problem, int64_t i, int64_t j) {
    return problem->xx[i * problem->n_features + j] + (i == j ? problem->ridge : 0.0);
}

/* factor[last, :] of the matrix on the first last + 1 of `indices`, from the rows before, and solution[last] of
   factor solution = right-hand side, whose last entry is given. Rows are `stride` long. */
static void append_row(const dpfast_supports *problem, const int64_t *indices, ptrdiff_t last, double right,
                       ptrdiff_t stride, double *factor, double *solution) {
    double *row = factor + last * stride;
    double pivot = entry(problem, indices[last], indices[last]);
    for (ptrdiff_t j = 0; j < last; j++) {
        double product = entry(problem, indices[last], indices[j]);
        for (ptrdiff_t k = 0; k < j; k++) product -= row[k] * factor[j * stride + k];
        row[j] = product / factor[j * stride + j];
        pivot -= row[j] * row[j];
        right -= row[j] * solution[j];
    }
    row[last] = sqrt(pivot);
    solution[last] = right / row[last];
}

/* x := factor'^-1 x */
static void solve_transposed(const double *factor, ptrdiff_t stride, ptrdiff_t n, double *x) {
    for (ptrdiff_t i = n - 1; i >= 0; i--) {
        for (ptrdiff_t j = i + 1; j < n; j++) x[i] -= factor[j * stride + i] * x[j];
        x[i] /= factor[i * stride + i];
    }
}

static void gradient_at(const dpfast_supports *problem, const int64_t *support, const double *theta, double *gradient) {
    for (ptrdiff_t i = 0; i < problem->size; i++) {
        double sum = -problem->xy[support[i]];
        for (ptrdiff_t j = 0; j < problem->size; j++) sum += entry(problem, support[i], support[j]) * theta[j];
        gradient[i] = sum;
    }
}

/* The value at theta, brought into the box, if its gap is within the tolerance; else NaN. */
static double certified(const dpfast_supports *problem, const int64_t *support, const work *w) {
    double value = 0.0, gap = 0.0;
    for (ptrdiff_t i = 0; i < problem->size; i++) w->clipped[i] = fmin(fmax(w->theta[i], -1.0), 1.0);
    gradient_at(problem, support, w->clipped, w->gradient);
    for (ptrdiff_t i = 0; i < problem->size; i++) {
        value += 0.5 * w->clipped[i] * (w->gradient[i] - problem->xy[support[i]]);
        gap += w->clipped[i] * w->gradient[i] + fabs(w->gradient[i]);
    }
    return gap <= problem->tolerance ? value : NAN;
}

/* theta := the minimiser with the coordinates that have a side at their bounds. */
static void minimise_free(const dpfast_supports *problem, const int64_t *support, int64_t *free_indices, const work *w) {
    ptrdiff_t n_free = 0, size = problem->size;
    for (ptrdiff_t i = 0; i < size; i++) {
        if (w->side[i] != 0.0) continue;
        double right = problem->xy[support[i]];
        for (ptrdiff_t j = 0; j < size; j++) right -= entry(problem, support[i], support[j]) * w->side[j];
        free_indices[n_free] = support[i];
        append_row(problem, free_indices, n_free, right, size, w->own, w->solution);
        n_free++;
    }
    solve_transposed(w->own, size, n_free, w->solution);
    for (ptrdiff_t i = 0, k = 0; i < size; i++) w->theta[i] = w->side[i] != 0.0 ? w->side[i] : w->solution[k++];
}

/* The side that a coordinate belongs on by the present theta and the gradient there. */
static double better_side(double side, double theta, double gradient) {
    if (side == 0.0) return theta > 1.0 ? 1.0 : theta < -1.0 ? -1.0 : 0.0;
    return side * gradient > 0.0 ? 0.0 : side;
}

/* Change the sides of all coordinates that belong elsewhere, or of the first of them; how many there were. */
static ptrdiff_t change_sides(ptrdiff_t size, int only_first, const work *w) {
    ptrdiff_t n_wrong = 0;
    for (ptrdiff_t i = 0; i < size; i++) {
        double side = better_side(w->side[i], w->theta[i], w->gradient[i]);
        if (side == w->side[i]) continue;
        n_wrong++;
        if (!only_first || n_wrong == 1) w->side[i] = side;
    }
    return n_wrong;
}

static double score(const dpfast_supports *problem, const int64_t *support, int64_t *free_indices, const work *w) {
    ptrdiff_t size = problem->size, fewest = size + 1;
    int patience = PATIENCE;
    for (ptrdiff_t i = 0; i < size; i++) {
        w->theta[i] = w->forward[i];
        w->side[i] = 0.0;
    }
    solve_transposed(w->factor, size, size, w->theta);
    double value = certified(problem, support, w);
    for (int pivots = 0; isnan(value) && pivots < MAX_PIVOTS; pivots++) {
        gradient_at(problem, support, w->theta, w->gradient);
        ptrdiff_t n_wrong = change_sides(size, patience == 0, w);
        if (n_wrong == 0) break;
        if (n_wrong < fewest) {
            fewest = n_wrong;
            patience = PATIENCE;
        } else if (patience > 0) {
            patience--;
        }
        minimise_free(problem, support, free_indices, w);
        value = certified(problem, support, w);
    }
    return value;
}

/* Advance to the next support; the first position that changed, or the size if there is none. */
static ptrdiff_t advance(int64_t *support, ptrdiff_t size, ptrdiff_t n_features) {
    ptrdiff_t i = size - 1;
    while (i >= 0 && support[i] == n_features - size + i) i--;
    if (i < 0) return size;
    support[i]++;
    for (ptrdiff_t j = i + 1; j < size; j++) support[j] = support[j - 1] + 1;
    return i;
}

/* Score n_scores supports in lexicographic order from `support` (in, out: the one after the last, if there is one). */
static void dpfast_score_supports(const dpfast_supports *problem, int64_t *support, ptrdiff_t n_scores, double *scores,
                                  double *workspace) {
    ptrdiff_t size = problem->size, changed = 0;
    work w = divided(workspace, size);
    /* The free indices lie behind the support's. */
    int64_t *free_indices = support + size;
    for (ptrdiff_t i = 0; i < n_scores; i++) {
        for (ptrdiff_t j = changed; j < size; j++)
            append_row(problem, support, j, problem->xy[support[j]], size, w.factor, w.forward);
        scores[i] = score(problem, support, free_indices, &w);
        changed = advance(support, size, problem->n_features);
    }
}
