/* Numbers as unevaluated sums of two doubles, the second within rounding of the first: some 106 bits.
 *
 * With u = 2^-53 (Joldes, Muller, Popescu 2017) a sum errs by at most 3.1 u^2 of the result, a product by 5.1 u^2, a
 * quotient by 10 u^2, a square root by 8 u^2. An inner product is compensated (Ogita, Rump, Oishi 2005): a chain of N terms
 * errs by at most 1.1 (N + 2)^2 u^2 times the sum of magnitudes, so one of length n, in DPFAST_LANES chains, by
 * ((n/8 + 4)^2 + 40) 1.1 u^2 times it. Products below 2^-960 lose what is below 2^-1074.
 *
 * Operations are in a fixed order: the vector levels of cpu.h give the same bits. The build forbids contraction.
 */
#ifndef DPFAST_PAIRS_H
#define DPFAST_PAIRS_H

#include <float.h>
#include <math.h>
#include <stddef.h>

#include "cpu.h"

#if defined(FLT_EVAL_METHOD) && FLT_EVAL_METHOD != 0
#error "error-free transformations need IEEE double arithmetic without excess precision"
#endif

enum { DPFAST_LANES = 8 };

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

/* The inner product of a row with x: high parts are summed exactly in interleaved chains, rests in doubles. */
static DPFAST_INLINE pair inner_product(const double *row, const double *x_high, const double *x_low, ptrdiff_t n)
{
    double sums[DPFAST_LANES] = {0.0}, rests[DPFAST_LANES] = {0.0};
    ptrdiff_t j = 0;
    for (; j + DPFAST_LANES <= n; j += DPFAST_LANES)
        for (int lane = 0; lane < DPFAST_LANES; lane++) {
            double product = row[j + lane] * x_high[j + lane];
            double rest = fma(row[j + lane], x_high[j + lane], -product) + row[j + lane] * x_low[j + lane];
            pair sum = two_sum(sums[lane], product);
            sums[lane] = sum.high;
            rests[lane] += sum.low + rest;
        }
    for (int lane = 0; j + lane < n; lane++) {
        double product = row[j + lane] * x_high[j + lane];
        double rest = fma(row[j + lane], x_high[j + lane], -product) + row[j + lane] * x_low[j + lane];
        pair sum = two_sum(sums[lane], product);
        sums[lane] = sum.high;
        rests[lane] += sum.low + rest;
    }
    pair total = {0.0, 0.0};
    for (int lane = 0; lane < DPFAST_LANES; lane++)
        total = add(total, two_sum(sums[lane], rests[lane]));
    return total;
}

#endif
