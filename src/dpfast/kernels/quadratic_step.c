/* Proximal gradient steps on a quadratic over a simple set, in twice the working precision.
 *
 * One step is T(x) = P(soft(x - h (Ax + v), h w)): soft-thresholding for the penalty w ||x||_1, then the Euclidean
 * projection P, which together are the exact proximal map for balls of the L1 and L2 norms and boxes around or beside 0
 * (coordinatewise over a box; soft(soft(y, a), b) = soft(y, a + b) over the L1 ball; over the L2 ball scaling keeps
 * signs). dpfast.solvers.constraints turns ||x - T(x)|| into a bound on the distance of T(x) from the minimiser, and a
 * bound on the rounding errors of T, proved there from what is stated here, into a number of accelerated steps that is
 * enough for any input.
 *
 * Arithmetic and its errors are those of pairs.h. No input exceeds 2^500 or, unless it is zero or negligible, falls
 * below 2^-400: the caller sees to it.
 *
 * The order of operations is fixed, so the vector levels of cpu.h give the same bits. Rows of the matrix, of F and of F'
 * are contiguous; threads and checks are the caller's.
 */
#include <stddef.h>

#include "pairs.h"

typedef enum { DPFAST_WHOLE_SPACE, DPFAST_BOX, DPFAST_L2_BALL, DPFAST_L1_BALL } dpfast_set;

/* x'Ax/2 + v'x + weight ||x||_1 over a set, A = matrix + diagonal I or, with a factor F, 2 F F' + diagonal I. */
typedef struct {
    ptrdiff_t n, n_columns;      /* of F; 0 for a matrix */
    const double *matrix;        /* n by n, symmetric; or F, n by n_columns; unused where gradients are given */
    const double *transposed;    /* F', n_columns by n; NULL for a matrix */
    double diagonal[2];          /* unevaluated sum */
    const double *linear;        /* v */
    double weight;
    dpfast_set set;
    double radius;               /* of a ball */
    const double *low, *high;    /* of a box */
    double step;
} dpfast_quadratic;

/* A vector in twice the working precision: the unevaluated sum of its parts, the second within rounding of the first. */
typedef struct {
    double *high, *low;
} dpfast_vector;

static DPFAST_INLINE pair entry(dpfast_vector x, ptrdiff_t i)
{
    return (pair){x.high[i], x.low[i]};
}

static DPFAST_INLINE void set_entry(dpfast_vector x, ptrdiff_t i, pair value)
{
    x.high[i] = value.high;
    x.low[i] = value.low;
}

/* out = matrix x. */
static DPFAST_INLINE void multiply_vector(const double *matrix, ptrdiff_t n_rows, ptrdiff_t n_columns, dpfast_vector x,
                                          dpfast_vector out)
{
    for (ptrdiff_t i = 0; i < n_rows; i++)
        set_entry(out, i, inner_product(matrix + i * n_columns, x.high, x.low, n_columns));
}

static DPFAST_INLINE void gradient_at(const dpfast_quadratic *q, dpfast_vector x, dpfast_vector gradient,
                                      double *workspace)
{
    double scale = 1.0;
    if (q->transposed) {
        dpfast_vector image = {workspace, workspace + q->n_columns};
        multiply_vector(q->transposed, q->n_columns, q->n, x, image);
        multiply_vector(q->matrix, q->n, q->n_columns, image, gradient);
        scale = 2.0;
    } else {
        multiply_vector(q->matrix, q->n, q->n, x, gradient);
    }
    pair diagonal = {q->diagonal[0], q->diagonal[1]};
    for (ptrdiff_t i = 0; i < q->n; i++) {
        pair product = {scale * gradient.high[i], scale * gradient.low[i]};
        product = add(product, multiply(diagonal, entry(x, i)));
        set_entry(gradient, i, add(product, (pair){q->linear[i], 0.0}));
    }
}

static DPFAST_INLINE pair soft_threshold(pair y, pair by)
{
    pair rest = add(magnitude(y), negative(by));
    if (!is_positive(rest))
        return (pair){0.0, 0.0};
    return y.high < 0.0 ? negative(rest) : rest;
}

static DPFAST_INLINE void project_onto_box(const dpfast_quadratic *q, dpfast_vector y)
{
    for (ptrdiff_t i = 0; i < q->n; i++) {
        if (is_positive(add((pair){q->low[i], 0.0}, negative(entry(y, i)))))
            set_entry(y, i, (pair){q->low[i], 0.0});
        else if (is_positive(add(entry(y, i), (pair){-q->high[i], 0.0})))
            set_entry(y, i, (pair){q->high[i], 0.0});
    }
}

static DPFAST_INLINE int project_onto_l2_ball(const dpfast_quadratic *q, dpfast_vector y)
{
    pair square = {0.0, 0.0}, radius = {q->radius, 0.0};
    for (ptrdiff_t i = 0; i < q->n; i++)
        square = add(square, multiply(entry(y, i), entry(y, i)));
    if (!is_positive(add(square, negative(multiply(radius, radius)))))
        return 0;
    pair factor = divide(radius, square_root(square));
    for (ptrdiff_t i = 0; i < q->n; i++)
        set_entry(y, i, multiply(factor, entry(y, i)));
    return 1;
}

/* Entries are shifted by the largest magnitude, as in projections.pyx, and the threshold found by Michelot's passes from
 * a point left of it: each takes a new set of entries, a part of the one before, so there are at most n. */
static DPFAST_INLINE int project_onto_l1_ball(const dpfast_quadratic *q, dpfast_vector y)
{
    pair total = {0.0, 0.0}, top = {0.0, 0.0}, radius = {q->radius, 0.0};
    for (ptrdiff_t i = 0; i < q->n; i++) {
        pair size = magnitude(entry(y, i));
        total = add(total, size);
        if (is_positive(add(size, negative(top))))
            top = size;
    }
    if (!is_positive(add(total, negative(radius))))
        return 0;
    pair threshold = add(top, negative(radius));
    ptrdiff_t n_above, n_before = q->n + 1;
    for (;;) {
        pair sum = negative(radius);
        n_above = 0;
        for (ptrdiff_t i = 0; i < q->n; i++) {
            pair size = magnitude(entry(y, i));
            if (is_positive(add(size, negative(threshold)))) {
                sum = add(sum, add(size, negative(top)));
                n_above++;
            }
        }
        if (n_above >= n_before)
            break;
        threshold = add(top, divide(sum, (pair){(double)n_above, 0.0}));
        n_before = n_above;
    }
    for (ptrdiff_t i = 0; i < q->n; i++)
        set_entry(y, i, soft_threshold(entry(y, i), threshold));
    return 1;
}

static DPFAST_INLINE int step_along(const dpfast_quadratic *q, dpfast_vector x, dpfast_vector gradient,
                                    dpfast_vector next)
{
    pair step = {-q->step, 0.0}, by = multiply((pair){q->weight, 0.0}, (pair){q->step, 0.0});
    for (ptrdiff_t i = 0; i < q->n; i++) {
        pair y = add(entry(x, i), multiply(step, entry(gradient, i)));
        set_entry(next, i, q->weight > 0.0 ? soft_threshold(y, by) : y);
    }
    if (q->set == DPFAST_BOX)
        project_onto_box(q, next);
    else if (q->set == DPFAST_L2_BALL)
        return project_onto_l2_ball(q, next);
    else if (q->set == DPFAST_L1_BALL)
        return project_onto_l1_ball(q, next);
    return 0;
}

static DPFAST_INLINE int step_from(const dpfast_quadratic *q, dpfast_vector x, dpfast_vector next, double *workspace)
{
    dpfast_vector gradient = {workspace, workspace + q->n};
    gradient_at(q, x, gradient, workspace + 2 * q->n);
    return step_along(q, x, gradient, next);
}

/* Scheme of Schmidt, Le Roux and Bach (2011), for strongly convex functions. */
static DPFAST_INLINE void extrapolate(double momentum, ptrdiff_t n, dpfast_vector x, dpfast_vector last,
                                      dpfast_vector ahead)
{
    for (ptrdiff_t i = 0; i < n; i++) {
        pair moved = add(entry(x, i), negative(entry(last, i)));
        set_entry(ahead, i, add(entry(x, i), multiply((pair){momentum, 0.0}, moved)));
        set_entry(last, i, entry(x, i));
    }
}

static DPFAST_INLINE void accelerate_from(const dpfast_quadratic *q, double momentum, ptrdiff_t n_steps, dpfast_vector x,
                                          dpfast_vector last, double *workspace)
{
    dpfast_vector ahead = {workspace, workspace + q->n};
    for (ptrdiff_t k = 0; k < n_steps; k++) {
        extrapolate(momentum, q->n, x, last, ahead);
        step_from(q, ahead, x, workspace + 2 * q->n);
    }
}

DPFAST_AT_LEVELS(void, gradient_at,
                 (const dpfast_quadratic *q, dpfast_vector x, dpfast_vector gradient, double *workspace),
                 { gradient_at(q, x, gradient, workspace); })
DPFAST_AT_LEVELS(int, step_from, (const dpfast_quadratic *q, dpfast_vector x, dpfast_vector next, double *workspace),
                 { return step_from(q, x, next, workspace); })
DPFAST_AT_LEVELS(int, step_along,
                 (const dpfast_quadratic *q, dpfast_vector x, dpfast_vector gradient, dpfast_vector next),
                 { return step_along(q, x, gradient, next); })
DPFAST_AT_LEVELS(void, accelerate_from,
                 (const dpfast_quadratic *q, double momentum, ptrdiff_t n_steps, dpfast_vector x, dpfast_vector last,
                  double *workspace),
                 { accelerate_from(q, momentum, n_steps, x, last, workspace); })

/* How many doubles of workspace a call needs. */
static ptrdiff_t dpfast_step_workspace(const dpfast_quadratic *q)
{
    return 4 * q->n + 2 * q->n_columns;
}

/* gradient = Ax + v. */
static void dpfast_quadratic_gradient(const dpfast_quadratic *q, dpfast_vector x, dpfast_vector gradient,
                                      double *workspace, int level)
{
    DPFAST_CALL(gradient_at, dpfast_resolve_level(level), q, x, gradient, workspace);
}

/* next = the proximal gradient step from x; next may be x. Returns whether a ball was left on the way: next is on its
 * boundary. */
static int dpfast_proximal_step(const dpfast_quadratic *q, dpfast_vector x, dpfast_vector next, double *workspace,
                                int level)
{
    return DPFAST_CALL(step_from, dpfast_resolve_level(level), q, x, next, workspace);
}

/* The same along a gradient that is given. */
static int dpfast_step_along(const dpfast_quadratic *q, dpfast_vector x, dpfast_vector gradient, dpfast_vector next,
                             int level)
{
    return DPFAST_CALL(step_along, dpfast_resolve_level(level), q, x, gradient, next);
}

/* ahead = x + momentum (x - last), then last = x. */
static void dpfast_extrapolate(double momentum, ptrdiff_t n, dpfast_vector x, dpfast_vector last, dpfast_vector ahead)
{
    extrapolate(momentum, n, x, last, ahead);
}

/* total = a + b. */
static void dpfast_add_vectors(ptrdiff_t n, dpfast_vector a, dpfast_vector b, dpfast_vector total)
{
    for (ptrdiff_t i = 0; i < n; i++) {
        pair sum = add((pair){a.high[i], a.low[i]}, (pair){b.high[i], b.low[i]});
        total.high[i] = sum.high;
        total.low[i] = sum.low;
    }
}

/* So many accelerated steps: x and its predecessor `last`, both in and out. */
static void dpfast_accelerate(const dpfast_quadratic *q, double momentum, ptrdiff_t n_steps, dpfast_vector x,
                              dpfast_vector last, double *workspace, int level)
{
    DPFAST_CALL(accelerate_from, dpfast_resolve_level(level), q, momentum, n_steps, x, last, workspace);
}
