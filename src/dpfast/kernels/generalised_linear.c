/* Generalised linear losses sum_i v_i l(x_i'theta, y_i): value, gradient and Hessian weights in double precision, and the
 * gradient in twice the precision.
 *
 * With z = x'theta, the losses and their derivatives in z are
 *
 *     squared           (z - y)^2/2                        l' = z - y
 *     logistic          log(1 + exp(-u)), u = yz - shift   l' = -y/(1 + exp(u))
 *     capped logistic   of margin u = yz, cap k, start s (p = 1/(1 + exp(s)) < k), D = 2 (k - p)/(p (1 - p)): the logistic
 *                       loss from s on; below, with t = (s - u)/D held to [0, 1], l' = -y (k - (k - p) (1 - t)^2)
 *     smoothed hinge    of margin u = yz, bend of half-width h around 1, t = (u - 1 + h)/(2h) held to [0, 1]:
 *                       l' = -y (1 - t)^2 (1 + 2t)         l = 1 - u below the bend, 2h (1/2 - t + t^3 - t^4/2) on it
 *     smoothed Huber    of residual r = z - y, threshold c, half-width h < c, w = c + h - |r|:
 *                       |l'| = |r| where w >= 2h, c where w <= 0, c - w^2/(4h) between.
 *     quantile          of residual r = y - z, level a, half-width h: a r and the smoothed hinge of margin 1 + r
 *     Poisson           exp(z) - yz up to the start s; beyond, with p = exp(s) < k, D = 2 (k - p)/p and t = (z - s)/D held
 *                       to [0, 1], l' = k - (k - p) (1 - t)^2 - y
 *
 * Where margins are taken, the sign of y alone is in them, and its size is a weight of the row: so many times the loss.
 *
 * The second derivatives are continuous: 3 t (1 - t)/h of the hinge and w/(2h) of Huber meet 0 and 1 at the ends, those
 * of the capped losses, 1 - t times what they are at s, meet that and 0.
 *
 * The double pass works row by row, each read once. The precise pass (arithmetic of pairs.h) evaluates z as a
 * compensated inner product, l' in pairs, and adds l' x to exact sums over BLOCK rows, whose totals are added in pairs:
 * over n rows the sum errs by at most 1.1 (BLOCK + 2)^2 u^2 + 3.1 u^2 (n/BLOCK + 1) times its magnitudes, l' by 2^-85
 * relative and 2^-100 of what z, y and the parameters measure together times its steepest slope. The exponential in it
 * reduces its argument by multiples of ln 2 and a factor 2^9, and squares a Taylor sum: its error is below 2^-90.
 *
 * Order of operations is fixed, so the levels of cpu.h give the same bits. Checks are the caller's: finite rows, outcomes
 * of size 1 at most where margins are taken. A weight multiplies what is in pairs: 2^-104 relative.
 */
#include <stddef.h>
#include <string.h>

#include "pairs.h"

typedef enum {
    DPFAST_SQUARED,
    DPFAST_LOGISTIC,
    DPFAST_CAPPED_LOGISTIC,
    DPFAST_SMOOTHED_HINGE,
    DPFAST_SMOOTHED_HUBER,
    DPFAST_SMOOTHED_QUANTILE,
    DPFAST_POISSON
} dpfast_loss_kind;

/* Parameters: half-widths of the hinge's, Huber's and the quantile's bends; the largest slope of Huber and the capped
 * logistic loss, the quantile's level, the largest Poisson rate; where a bend of the capped losses begins; what the logistic
 * loss takes from margins. */
typedef struct {
    dpfast_loss_kind kind;
    double width, threshold, start, shift;
} dpfast_loss;

/* Rows of a C-contiguous table, their outcomes and their weights, of 0 or more; NULL for weights of 1. */
typedef struct {
    const double *rows, *outcomes, *weights;
    ptrdiff_t n_features;
} dpfast_observations;

enum { BLOCK = 1024 };

/* Derivatives at one row. */
typedef struct {
    double value, first, second;
} local_loss;

/* Of a margin, with the size of the slope, as those below. */
static DPFAST_INLINE local_loss logistic(double u)
{
    double small = exp(-fabs(u)), of_larger = 1.0 / (1.0 + small), of_smaller = small * of_larger;
    double wrong = u >= 0.0 ? of_smaller : of_larger;
    return (local_loss){log1p(small) + (u < 0.0 ? -u : 0.0), wrong, of_larger * of_smaller};
}

/* A loss of a falling slope: beyond a start by `beyond` > 0 the second derivative falls in a line, the slope to a cap. */
static DPFAST_INLINE local_loss capped(local_loss start, double cap, double beyond)
{
    double left = cap - start.first, length = 2.0 * left / start.second, rest = 1.0 - beyond / length;
    if (rest < 0.0)
        rest = 0.0;
    double value = start.value + cap * beyond - left * length / 3.0 * (1.0 - rest * rest * rest);
    return (local_loss){value, cap - left * rest * rest, start.second * rest};
}

/* The smoothed hinge of margin 1 + r. */
static DPFAST_INLINE local_loss hinge(double r, double h)
{
    double t = (r + h) / (2.0 * h), rest = 1.0 - t;
    if (t <= 0.0)
        return (local_loss){-r, 1.0, 0.0};
    if (rest <= 0.0)
        return (local_loss){0.0, 0.0, 0.0};
    return (local_loss){h * rest * rest * rest * (1.0 + t), rest * rest * (1.0 + 2.0 * t), 3.0 * t * rest / h};
}

/* What a loss of the margin is in z, of a row of class and weight y. */
static DPFAST_INLINE local_loss weighted(local_loss of_margin, double y)
{
    return (local_loss){fabs(y) * of_margin.value, -y * of_margin.first, fabs(y) * of_margin.second};
}

static DPFAST_INLINE local_loss evaluate(const dpfast_loss *loss, double z, double y)
{
    double h = loss->width, c = loss->threshold, u = y < 0.0 ? -z : z;
    switch (loss->kind) {
    case DPFAST_LOGISTIC:
        return weighted(logistic(u - loss->shift), y);
    case DPFAST_CAPPED_LOGISTIC: {
        double below = loss->start - u;
        return weighted(below <= 0.0 ? logistic(u) : capped(logistic(loss->start), c, below), y);
    }
    case DPFAST_SMOOTHED_HINGE:
        return weighted(hinge(u - 1.0, h), y);
    case DPFAST_SMOOTHED_HUBER: {
        double r = z - y, size = fabs(r), w = c + h - size, sign = r < 0.0 ? -1.0 : 1.0, inner = c - h;
        if (w >= 2.0 * h)
            return (local_loss){0.5 * r * r, r, 1.0};
        double bend = 0.5 * inner * inner + c * (size - inner) - 2.0 * h * h / 3.0;
        if (w <= 0.0)
            return (local_loss){bend, sign * c, 0.0};
        return (local_loss){bend + w * w * w / (12.0 * h), sign * (c - w * w / (4.0 * h)), w / (2.0 * h)};
    }
    case DPFAST_SMOOTHED_QUANTILE: {
        local_loss bent = hinge(y - z, h);
        return (local_loss){bent.value + c * (y - z), bent.first - c, bent.second};
    }
    case DPFAST_POISSON: {
        double beyond = z - loss->start, rate = exp(beyond > 0.0 ? loss->start : z);
        local_loss of_rate = {rate, rate, rate};
        if (beyond > 0.0)
            of_rate = capped(of_rate, c, beyond);
        return (local_loss){of_rate.value - y * z, of_rate.first - y, of_rate.second};
    }
    default:
        return (local_loss){0.5 * (z - y) * (z - y), z - y, 1.0};
    }
}

/* Write the n losses of predictions z and outcomes y, and their first and second derivatives in z. */
static void dpfast_local_losses(const dpfast_loss *loss, const double *z, const double *y, ptrdiff_t n, double *values,
                                double *slopes, double *curvatures)
{
    for (ptrdiff_t i = 0; i < n; i++) {
        local_loss at = evaluate(loss, z[i], y[i]);
        values[i] = at.value;
        slopes[i] = at.first;
        curvatures[i] = at.second;
    }
}

static DPFAST_INLINE void model_of(const dpfast_observations *observations, const dpfast_loss *loss, const double *theta,
                                   ptrdiff_t start, ptrdiff_t stop, double *value, double *gradient, double *scaled)
{
    ptrdiff_t n = observations->n_features;
    for (ptrdiff_t i = start; i < stop; i++) {
        const double *row = observations->rows + i * n;
        double sums[DPFAST_LANES] = {0.0}, z = 0.0;
        ptrdiff_t j = 0;
        for (; j + DPFAST_LANES <= n; j += DPFAST_LANES)
            for (int lane = 0; lane < DPFAST_LANES; lane++)
                sums[lane] += row[j + lane] * theta[j + lane];
        for (int lane = 0; j + lane < n; lane++)
            sums[lane] += row[j + lane] * theta[j + lane];
        for (int lane = 0; lane < DPFAST_LANES; lane++)
            z += sums[lane];
        local_loss at = evaluate(loss, z, observations->outcomes[i]);
        if (observations->weights) {
            double weight = observations->weights[i];
            at = (local_loss){weight * at.value, weight * at.first, weight * at.second};
        }
        double root = sqrt(at.second);
        *value += at.value;
        for (j = 0; j < n; j++) {
            gradient[j] += at.first * row[j];
            scaled[j] = root * row[j];
        }
        scaled += n;
    }
}

static const pair ONE = {1.0, 0.0};

static DPFAST_INLINE pair times(double a, pair b)
{
    return multiply((pair){a, 0.0}, b);
}

/* 1/2! to 1/9!. */
static const pair INVERSE_FACTORIALS[] = {
    {0x1.0000000000000p-1, 0x0.0p+0},
    {0x1.5555555555555p-3, 0x1.5555555555555p-57},
    {0x1.5555555555555p-5, 0x1.5555555555555p-59},
    {0x1.1111111111111p-7, 0x1.1111111111111p-63},
    {0x1.6c16c16c16c17p-10, -0x1.f49f49f49f49fp-65},
    {0x1.a01a01a01a01ap-13, 0x1.a01a01a01a01ap-73},
    {0x1.a01a01a01a01ap-16, 0x1.a01a01a01a01ap-76},
    {0x1.71de3a556c734p-19, -0x1.c154f8ddc6c00p-73},
};

/* exp(a), a held to [-700, 700]. */
static DPFAST_INLINE pair exponential(pair a)
{
    const pair ln2 = {0x1.62e42fefa39efp-1, 0x1.abc9e3b39803fp-56};
    if (a.high < -700.0)
        a = (pair){-700.0, 0.0};
    if (a.high > 700.0)
        a = (pair){700.0, 0.0};
    double multiple = nearbyint(a.high / ln2.high);
    pair rest = add(a, times(-multiple, ln2)), sum = {0.0, 0.0};
    rest = (pair){rest.high * 0x1p-9, rest.low * 0x1p-9};
    for (int order = 9; order >= 2; order--)
        sum = multiply(add(sum, INVERSE_FACTORIALS[order - 2]), rest);
    sum = add(rest, multiply(sum, rest));
    /* sum = exp(rest) - 1: (1 + s)^2 = 1 + 2s + s^2. */
    for (int doubling = 0; doubling < 9; doubling++)
        sum = add((pair){2.0 * sum.high, 2.0 * sum.low}, multiply(sum, sum));
    sum = add(ONE, sum);
    /* A NaN, of rows or theta whose product overflows, fits no integer. */
    int power = isnan(multiple) ? 0 : (int)multiple;
    return (pair){ldexp(sum.high, power), ldexp(sum.low, power)};
}

/* `capped` and `hinge`, their slopes. */
static DPFAST_INLINE pair precise_capped(pair slope, pair curvature, pair cap, pair beyond)
{
    pair left = add(cap, negative(slope)), length = divide((pair){2.0 * left.high, 2.0 * left.low}, curvature);
    pair rest = add(ONE, negative(divide(beyond, length)));
    return is_positive(rest) ? add(cap, negative(multiply(left, multiply(rest, rest)))) : cap;
}

static DPFAST_INLINE pair precise_hinge(pair r, double width)
{
    pair h = {width, 0.0}, twice = {2.0 * width, 0.0}, above = add(r, h), below = add(h, negative(r));
    if (!is_positive(above))
        return ONE;
    if (!is_positive(below))
        return (pair){0.0, 0.0};
    pair t = divide(above, twice), rest = divide(below, twice);
    return multiply(multiply(rest, rest), add(ONE, add(t, t)));
}

/* 1/(1 + exp(u)). */
static DPFAST_INLINE pair precise_logistic(pair u)
{
    pair small = exponential(u.high < 0.0 ? u : negative(u));
    return divide(u.high < 0.0 ? ONE : small, add(ONE, small));
}

static DPFAST_INLINE pair precise_derivative(const dpfast_loss *loss, pair z, double y)
{
    pair h = {loss->width, 0.0}, c = {loss->threshold, 0.0}, u = y < 0.0 ? negative(z) : z;
    switch (loss->kind) {
    case DPFAST_LOGISTIC:
        return times(-y, precise_logistic(add(u, (pair){-loss->shift, 0.0})));
    case DPFAST_CAPPED_LOGISTIC: {
        pair start = {loss->start, 0.0}, below = add(start, negative(u));
        if (!is_positive(below))
            return times(-y, precise_logistic(u));
        pair p = precise_logistic(start);
        return times(-y, precise_capped(p, multiply(p, add(ONE, negative(p))), c, below));
    }
    case DPFAST_SMOOTHED_HINGE:
        return times(-y, precise_hinge(add(u, negative(ONE)), loss->width));
    case DPFAST_SMOOTHED_HUBER: {
        pair r = add(z, (pair){-y, 0.0}), size = magnitude(r), w = add(add(c, h), negative(size)), derivative;
        if (!is_positive(add(size, add(h, negative(c)))))
            return r;
        derivative = is_positive(w) ? add(c, negative(divide(multiply(w, w), (pair){4.0 * loss->width, 0.0}))) : c;
        return r.high < 0.0 ? negative(derivative) : derivative;
    }
    case DPFAST_SMOOTHED_QUANTILE:
        return add(precise_hinge(add((pair){y, 0.0}, negative(z)), loss->width), negative(c));
    case DPFAST_POISSON: {
        pair start = {loss->start, 0.0}, beyond = add(z, negative(start)), rate = exponential(is_positive(beyond) ? start : z);
        if (is_positive(beyond))
            rate = precise_capped(rate, rate, c, beyond);
        return add(rate, (pair){-y, 0.0});
    }
    default:
        return add(z, (pair){-y, 0.0});
    }
}

static DPFAST_INLINE void precise_gradient_of(const dpfast_observations *observations, const dpfast_loss *loss,
                                              const double *theta, ptrdiff_t start, ptrdiff_t stop, double *gradient,
                                              double *workspace)
{
    ptrdiff_t n = observations->n_features;
    double *sums = workspace, *rests = workspace + n;
    memset(gradient, 0, 2 * (size_t)n * sizeof *gradient);
    for (ptrdiff_t first = start; first < stop; first += BLOCK) {
        ptrdiff_t last = first + BLOCK < stop ? first + BLOCK : stop;
        memset(workspace, 0, 2 * (size_t)n * sizeof *workspace);
        for (ptrdiff_t i = first; i < last; i++) {
            const double *row = observations->rows + i * n;
            pair z = inner_product(row, theta, theta + n, n);
            pair derivative = precise_derivative(loss, z, observations->outcomes[i]);
            if (observations->weights)
                derivative = times(observations->weights[i], derivative);
            for (ptrdiff_t j = 0; j < n; j++) {
                double product = row[j] * derivative.high;
                double rest = fma(row[j], derivative.high, -product) + row[j] * derivative.low;
                pair sum = two_sum(sums[j], product);
                sums[j] = sum.high;
                rests[j] += sum.low + rest;
            }
        }
        for (ptrdiff_t j = 0; j < n; j++) {
            pair total = add((pair){gradient[j], gradient[n + j]}, two_sum(sums[j], rests[j]));
            gradient[j] = total.high;
            gradient[n + j] = total.low;
        }
    }
}

DPFAST_AT_LEVELS(void, model_of,
                 (const dpfast_observations *observations, const dpfast_loss *loss, const double *theta,
                  ptrdiff_t start, ptrdiff_t stop, double *value, double *gradient, double *scaled),
                 { model_of(observations, loss, theta, start, stop, value, gradient, scaled); })

DPFAST_AT_LEVELS(void, precise_gradient_of,
                 (const dpfast_observations *observations, const dpfast_loss *loss, const double *theta,
                  ptrdiff_t start, ptrdiff_t stop, double *gradient, double *workspace),
                 { precise_gradient_of(observations, loss, theta, start, stop, gradient, workspace); })

/* Add rows [start, stop): losses to *value, their gradients to gradient[n_features]; write each row times the square root
 * of its second derivative to `scaled`. In double precision. */
static void dpfast_add_model(const dpfast_observations *observations, const dpfast_loss *loss, const double *theta,
                             ptrdiff_t start, ptrdiff_t stop, double *value, double *gradient, double *scaled,
                             int level)
{
    DPFAST_CALL(model_of, dpfast_resolve_level(level), observations, loss, theta, start, stop, value, gradient,
                scaled);
}

/* gradient = sum over rows [start, stop), in twice the precision; vectors are high parts, then low parts. */
static void dpfast_precise_gradient(const dpfast_observations *observations, const dpfast_loss *loss,
                                    const double *theta, ptrdiff_t start, ptrdiff_t stop, double *gradient,
                                    double *workspace, int level)
{
    DPFAST_CALL(precise_gradient_of, dpfast_resolve_level(level), observations, loss, theta, start, stop, gradient,
                workspace);
}
