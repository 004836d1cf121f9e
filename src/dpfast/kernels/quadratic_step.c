/* Proximal gradient steps on a quadratic over a simple set, in twice the working precision.
 *
 * One step is T(x) = P(soft(x - h (Ax + v), h w)): soft-thresholding for the penalty w ||x||_1, then the Euclidean
 * projection P, which together are the exact proximal map for balls of the L1 and L2 norms and boxes around or beside 0
 * (coordinatewise over a box; soft(soft(y, a), b) = soft(y, a + b) over the L1 ball; over the L2 ball scaling keeps
 * signs). dpfast.solvers.constrained turns ||x - T(x)|| into a bound on the distance of T(x) from the minimiser, and a
 * bound on the rounding errors of T, proved there from what is stated here, into a number of accelerated steps that is
 * enough for any input.
 *
 * Arithmetic. Numbers are unevaluated sums of two doubles (u = 2^-53; bounds of Joldes, Muller, Popescu 2017): a sum
 * errs by at most 3.1 u^2 of the result, a product by 5.1 u^2, a quotient by 10 u^2, a square root by 8 u^2. Products of
 * a matrix with a vector are compensated dot products (Ogita, Rump, Oishi 2005): high parts are summed exactly in
 * LANES interleaved chains, what rounding takes from them is summed in doubles. A chain of N terms errs by at most
 * 1.1 (N + 2)^2 u^2 times the sum of magnitudes, so a dot product of length n by ((n/8 + 4)^2 + 40) 1.1 u^2 times it.
 * No input exceeds 2^500 or, unless it is zero or negligible, falls below 2^-400: the caller sees to it.
 *
 * The order of operations is fixed, so the vector levels of cpu.h give the same bits. Rows of the matrix, of F and of F'
 * are contiguous; threads and checks are the caller's.
 */
#include "quadratic_step.h"

#include <math.h>

#include "cpu.h"

#if defined(FLT_EVAL_METHOD) && FLT_EVAL_METHOD != 0
#error "error-free transformations need IEEE double arithmetic without excess precision"
#endif

enum { LANES = 8 };

typedef struct {
    double high, low;
} pair;

static DPFAST_INLINE pair fast_two_sum(double a, double b)
{
    double sum = a + b;
    return (pair){sum, b - (sum - a)};
}

static DPFAST_INLINE pair two_sum(double a, double b)
{
    double sum = a + b, added = sum - a;
    return (pair){sum, (a - (sum - added)) + (b - added)};
}

static DPFAST_INLINE pair add(pair a, pair b)
{
    pair s = two_sum(a.high, b.high), t = two_sum(a.low, b.low);
    pair v = fast_two_sum(s.high, s.low + t.high);
    return fast_two_sum(v.high, t.low + v.low);
}

static DPFAST_INLINE pair negative(pair a)
{
    return (pair){-a.high, -a.low};
}

static DPFAST_INLINE pair multiply(pair a, pair b)
{
    double product = a.high * b.high;
    double rest = fma(a.high, b.high, -product);
    return fast_two_sum(product, rest + (a.high * b.low + a.low * b.high));
}

static DPFAST_INLINE pair divide(pair a, pair b)
{
    double quotient = a.high / b.high;
    pair rest = add(a, negative(multiply(b, (pair){quotient, 0.0})));
    return fast_two_sum(quotient, rest.high / b.high);
}

static DPFAST_INLINE pair square_root(pair a)
{
    double root = sqrt(a.high);
    pair rest = add(a, negative(multiply((pair){root, 0.0}, (pair){root, 0.0})));
    return fast_two_sum(root, rest.high / (2.0 * root));
}

static DPFAST_INLINE pair magnitude(pair a)
{
    return a.high < 0.0 ? negative(a) : a;
}

static DPFAST_INLINE int is_positive(pair a)
{
    return a.high > 0.0;
}

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
    for (ptrdiff_t i = 0; i < n_rows; i++) {
        const double *row = matrix + i * n_columns;
        double sums[LANES] = {0.0}, rests[LANES] = {0.0};
        ptrdiff_t j = 0;
        for (; j + LANES <= n_columns; j += LANES)
            for (int lane = 0; lane < LANES; lane++) {
                double product = row[j + lane] * x.high[j + lane];
                double rest = fma(row[j + lane], x.high[j + lane], -product) + row[j + lane] * x.low[j + lane];
                pair sum = two_sum(sums[lane], product);
                sums[lane] = sum.high;
                rests[lane] += sum.low + rest;
            }
        for (int lane = 0; j + lane < n_columns; lane++) {
            double product = row[j + lane] * x.high[j + lane];
            double rest = fma(row[j + lane], x.high[j + lane], -product) + row[j + lane] * x.low[j + lane];
            pair sum = two_sum(sums[lane], product);
            sums[lane] = sum.high;
            rests[lane] += sum.low + rest;
        }
        pair total = {0.0, 0.0};
        for (int lane = 0; lane < LANES; lane++)
            total = add(total, two_sum(sums[lane], rests[lane]));
        set_entry(out, i, total);
    }
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

static DPFAST_INLINE int step_from(const dpfast_quadratic *q, dpfast_vector x, dpfast_vector next, double *workspace)
{
    dpfast_vector gradient = {workspace, workspace + q->n};
    gradient_at(q, x, gradient, workspace + 2 * q->n);
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

/* Scheme of Schmidt, Le Roux and Bach (2011), for strongly convex functions. */
static DPFAST_INLINE void accelerate_from(const dpfast_quadratic *q, double momentum, ptrdiff_t n_steps, dpfast_vector x,
                                          dpfast_vector last, double *workspace)
{
    dpfast_vector ahead = {workspace, workspace + q->n};
    for (ptrdiff_t k = 0; k < n_steps; k++) {
        for (ptrdiff_t i = 0; i < q->n; i++) {
            pair moved = add(entry(x, i), negative(entry(last, i)));
            set_entry(ahead, i, add(entry(x, i), multiply((pair){momentum, 0.0}, moved)));
            set_entry(last, i, entry(x, i));
        }
        step_from(q, ahead, x, workspace + 2 * q->n);
    }
}

#define INSTANTIATE(level, target)                                                                                     \
    static target void gradient_##level(const dpfast_quadratic *q, dpfast_vector x, dpfast_vector gradient,            \
                                        double *workspace)                                                             \
    {                                                                                                                  \
        gradient_at(q, x, gradient, workspace);                                                                        \
    }                                                                                                                  \
    static target int step_##level(const dpfast_quadratic *q, dpfast_vector x, dpfast_vector next, double *workspace)  \
    {                                                                                                                  \
        return step_from(q, x, next, workspace);                                                                       \
    }                                                                                                                  \
    static target void accelerate_##level(const dpfast_quadratic *q, double momentum, ptrdiff_t n_steps,               \
                                          dpfast_vector x, dpfast_vector last, double *workspace)                      \
    {                                                                                                                  \
        accelerate_from(q, momentum, n_steps, x, last, workspace);                                                     \
    }

INSTANTIATE(baseline, )
#if DPFAST_HAVE_X86_LEVELS
INSTANTIATE(avx2, DPFAST_TARGET_AVX2)
INSTANTIATE(avx512, DPFAST_TARGET_AVX512)
#define AT_LEVEL(name)                                                                                                 \
    (dpfast_resolve_level(level) == DPFAST_AVX512 ? name##_avx512                                                      \
     : dpfast_resolve_level(level) == DPFAST_AVX2 ? name##_avx2                                                        \
                                                  : name##_baseline)
#else
#define AT_LEVEL(name) name##_baseline
#endif

ptrdiff_t dpfast_step_workspace(const dpfast_quadratic *q)
{
    return 4 * q->n + 2 * q->n_columns;
}

void dpfast_quadratic_gradient(const dpfast_quadratic *q, dpfast_vector x, dpfast_vector gradient, double *workspace,
                               int level)
{
    AT_LEVEL(gradient)(q, x, gradient, workspace);
}

int dpfast_proximal_step(const dpfast_quadratic *q, dpfast_vector x, dpfast_vector next, double *workspace, int level)
{
    return AT_LEVEL(step)(q, x, next, workspace);
}

void dpfast_accelerate(const dpfast_quadratic *q, double momentum, ptrdiff_t n_steps, dpfast_vector x, dpfast_vector last,
                       double *workspace, int level)
{
    AT_LEVEL(accelerate)(q, momentum, n_steps, x, last, workspace);
}
