/* A quadratic over a ball or a sphere, in the eigenbasis of its matrix: one secular equation.
 *
 * Minimise sum_j (a_j x_j^2 / 2 - c_j x_j) subject to ||x|| <= R, or ||x|| = R (Hager 2001, Lemmas 2.1 and 2.2, for
 * x'Ax - 2b'x, the same minimiser). At the minimum (a_j + nu) x_j = c_j with nu >= -min a; over the ball also nu >= 0,
 * and nu = 0 inside it. With the origin o = min a (over the ball, min(min a, 0)), the gaps g_j = a_j - o >= 0 and the
 * shift m = nu + o >= 0, the equation to solve is
 *
 *     F(m) = sum_j q_j^2 - R^2 = 0,    q_j = c_j/(g_j + m),
 *
 * F decreasing and convex. If F(0) <= 0, which takes c_j = 0 wherever g_j = 0, m is 0. That is the interior of the ball
 * if the origin is 0 and above no eigenvalue; else the hard case, in which a free component of length sqrt(-F(0)) is
 * added on the first term of the smallest eigenvalue (either sign is a minimiser; here it is positive).
 *
 * Iteration. With s = sum q^2, t = sum q^2 w, v = sum q^2 w^2, w_j = 1/(g_j + m), the function A (D/(D + step))^2 + B
 * that agrees with sum q^2 to second order at m has D = t/v, A = t^2/v, B = s - A. It meets R^2 after
 *
 *     step = t F/(u (u + t)),    u^2 = t^2 - F v,
 *
 * and converges with order three: a cluster of small gaps, near the hard case, takes the pole and the rest the constant
 * (Melman 1997 treats such iterations). If u^2 <= 0 it never meets R^2. Without the constant the step is Newton's on
 * 1 - R/||q|| (Hebden 1973, Reinsch 1971), s F/(t R (R + ||q||)), which from the left never passes the root. More than one
 * of those means that m is still far too small for a pole that hardly matters, so they are stretched more and more. The
 * start max_j (|c_j|/R - g_j) is left of the root and keeps every |q_j| <= R from there on. A bracket guards it all.
 *
 * Accuracy. A relative error e of F moves m by e K m, K = s/(m t): harmless unless m is determined by terms of much
 * larger gaps, as near the hard case. There F is evaluated again, with the rounding errors of gaps, quotients, squares
 * and sum carried along: twice the working precision. All sums g_j + m are of nonnegative numbers, so m and every x_j
 * come out to some 1e-13 relative at least up to K of 1e17, and x in norm always.
 *
 * Scale. Radii, gaps and coefficients are multiplied by powers of two, which rounds nothing, such that R is about 1 and
 * the larger of the widest gap and |c|/R about 2^TOP: then no sum overflows or underflows to effect. Coefficients
 * smaller than that by a factor of 2^-880 count as zero.
 *
 * Order of operations. The loops over terms are compiled once per vector level. Sums run in LANES interleaved
 * parts over blocks of BLOCK terms, added in a fixed order, so that the levels give the same bits. Terms with a zero
 * coefficient get the gap 2^TOP and drop out of all sums; the workspace holds the scaled problem, padded with such terms
 * to a multiple of LANES. The caller guarantees finite eigenvalues and coefficients, positive finite radii, at least one
 * term; threading is the caller's.
 */
#ifndef LEVEL /* once, before the loops */

#include "secular.h"

#include <float.h>
#include <math.h>
#include <stdint.h>
#include <string.h>

#include "cpu.h"

#if DPFAST_HAVE_X86_LEVELS
#include <immintrin.h>
#endif

#if defined(FLT_EVAL_METHOD) && FLT_EVAL_METHOD != 0
#error "rounding errors are carried as IEEE double arithmetic makes them, without excess precision"
#endif

enum { LANES = 8, BLOCK = 512, MAX_EVALUATIONS = 200, TOP = 400 };

#define LARGEST_GAP 0x1p400
#define SMALLEST_COEFFICIENT 0x1p-480
/* A step shorter than this part of m leaves an error of its cube. */
#define SHORT_STEP 0x1p-17
/* From one Newton step to the next, its stretch grows by this factor. */
#define STRETCH 4.0
/* K beyond which F is evaluated in twice the precision, and relative sizes of F that the two evaluations resolve. */
#define ILL_CONDITIONED 256.0
#define RESOLVED 0x1p-37
#define RESOLVED_TWICE 0x1p-90

/* A power of two, exponent clamped to the normal range. */
static DPFAST_INLINE double power_of_two(int exponent)
{
    uint64_t bits = (uint64_t)((exponent < -1022 ? -1022 : exponent > 1023 ? 1023 : exponent) + 1023) << 52;
    double power;
    memcpy(&power, &bits, sizeof power);
    return power;
}

/* floor(log2(x)) for a normal x >= 0, -1023 below. */
static DPFAST_INLINE int exponent_of(double x)
{
    uint64_t bits;
    memcpy(&bits, &x, sizeof bits);
    return (int)(bits >> 52) - 1023;
}

/* 2^exponent in two factors, since it may be out of range where its products are not. */
typedef struct {
    double first, second;
} scale;

static DPFAST_INLINE scale scale_by(int exponent)
{
    int half = exponent / 2;
    return (scale){power_of_two(half), power_of_two(exponent - half)};
}

typedef struct {
    double lowest, highest;
} range;

/* s, t and v of the comment above. */
typedef struct {
    double s, t, v;
} power_sums;

/* One problem in powers of two, arrays in the workspace. */
typedef struct {
    ptrdiff_t n;       /* padded to a multiple of LANES */
    double *gaps;      /* rounded */
    double *gap_rests; /* what rounding took from the gaps; filled when needed */
    double *coefficients;
    double radius;
    double lower, upper; /* bounds of the shift */
    double origin;
    double guard; /* scales eigenvalues so that their differences do not overflow */
    scale gap_scale, coefficient_scale; /* the first on top of the guard */
    int gap_exponent;
    double radius_scale;
} scaled_problem;

static void choose_scales(scaled_problem *problem, range eigenvalues, double largest_coefficient,
                                        double radius)
{
    int radius_exponent = exponent_of(radius);
    int halve = eigenvalues.highest > 0.5 * DBL_MAX || eigenvalues.lowest < -0.5 * DBL_MAX;
    problem->guard = halve ? 0.5 : 1.0;
    double spread = eigenvalues.highest * problem->guard - problem->origin * problem->guard;
    int top = exponent_of(largest_coefficient) - radius_exponent;
    if (spread > 0.0 && exponent_of(spread) + halve > top)
        top = exponent_of(spread) + halve;
    if (radius_exponent < -1022)
        radius_exponent = -1022;
    problem->gap_exponent = TOP - top;
    problem->gap_scale = scale_by(problem->gap_exponent + halve);
    problem->coefficient_scale = scale_by(problem->gap_exponent - radius_exponent);
    problem->radius_scale = power_of_two(radius_exponent);
    problem->radius = radius / problem->radius_scale;
}

/* The loops over terms for one vector level. */
typedef struct {
    range (*range_of)(const double *x, ptrdiff_t n);
    double (*largest_magnitude)(const double *x, ptrdiff_t n);
    void (*scale_terms)(scaled_problem *problem, const double *eigenvalues, const double *coefficients,
                        ptrdiff_t n_terms);
    power_sums (*add_powers)(const scaled_problem *problem, double shift);
    double (*precise_excess)(const scaled_problem *problem, double shift);
    void (*write_solution)(const scaled_problem *problem, double shift, ptrdiff_t n_terms, double *solution);
} term_loops;

static DPFAST_INLINE double sum_lanes(const double *lanes)
{
    return ((lanes[0] + lanes[4]) + (lanes[2] + lanes[6])) + ((lanes[1] + lanes[5]) + (lanes[3] + lanes[7]));
}

#else /* once per level, as this file includes itself below */

/* Loops over vectors of WIDTH doubles.
 *
 * Arrays of the workspace are padded to LANES; inputs and outputs are not, so their last terms go one by one. */
#define LOAD(p) (*(const VECTOR *)(p))
#define STORE(p, v) (*(VECTOR *)(p) = (v))
#define PARTS (LANES / WIDTH)
#define CHOOSE(condition, a, b) ((VECTOR)(((condition) & (MASK)(a)) | (~(condition) & (MASK)(b))))
#define LARGER(a, b) CHOOSE((a) > (b), a, b)
#define MAGNITUDE(a) ((VECTOR)((MASK)(a) & ~(MASK)SPLAT(-0.0)))

static inline TARGET double LEVEL(largest_lane)(VECTOR x)
{
    double largest = x[0];
    for (int lane = 1; lane < WIDTH; lane++)
        largest = x[lane] > largest ? x[lane] : largest;
    return largest;
}

static TARGET range LEVEL(range_of)(const double *x, ptrdiff_t n)
{
    VECTOR negative_lowest = -SPLAT(x[0]), highest = SPLAT(x[0]);
    ptrdiff_t j = 0;
    for (; j + WIDTH <= n; j += WIDTH) {
        VECTOR values = LOAD(x + j), negatives = -values;
        negative_lowest = LARGER(negatives, negative_lowest);
        highest = LARGER(values, highest);
    }
    range found = {-LEVEL(largest_lane)(negative_lowest), LEVEL(largest_lane)(highest)};
    for (; j < n; j++) {
        found.lowest = x[j] < found.lowest ? x[j] : found.lowest;
        found.highest = x[j] > found.highest ? x[j] : found.highest;
    }
    return found;
}

static TARGET double LEVEL(largest_magnitude)(const double *x, ptrdiff_t n)
{
    VECTOR magnitudes = SPLAT(0.0);
    ptrdiff_t j = 0;
    for (; j + WIDTH <= n; j += WIDTH) {
        VECTOR magnitude = MAGNITUDE(LOAD(x + j));
        magnitudes = LARGER(magnitude, magnitudes);
    }
    double largest = LEVEL(largest_lane)(magnitudes);
    for (; j < n; j++)
        largest = fabs(x[j]) > largest ? fabs(x[j]) : largest;
    return largest;
}

/* Fill gaps and coefficients of the workspace, and bound the shift. */
static TARGET void LEVEL(scale_terms)(scaled_problem *problem, const double *eigenvalues, const double *coefficients,
                                      ptrdiff_t n_terms)
{
    const VECTOR gap_first = SPLAT(problem->gap_scale.first), gap_second = SPLAT(problem->gap_scale.second);
    const VECTOR first = SPLAT(problem->coefficient_scale.first), second = SPLAT(problem->coefficient_scale.second);
    const VECTOR guard = SPLAT(problem->guard), origin = SPLAT(problem->guard * problem->origin);
    /* A little less than it is, so that rounding cannot put the bound beyond the root. */
    const VECTOR per_radius = SPLAT((1.0 - 0x1p-50) / problem->radius);
    double *gaps = problem->gaps, *scaled = problem->coefficients;
    VECTOR lower = SPLAT(0.0), largest = SPLAT(0.0);
    memcpy(gaps, eigenvalues, (size_t)n_terms * sizeof *gaps);
    memcpy(scaled, coefficients, (size_t)n_terms * sizeof *scaled);
    for (ptrdiff_t j = n_terms; j < problem->n; j++)
        gaps[j] = scaled[j] = 0.0;
    for (ptrdiff_t j = 0; j < problem->n; j += WIDTH) {
        VECTOR gap = (LOAD(gaps + j) * guard - origin) * gap_first * gap_second;
        VECTOR coefficient = LOAD(scaled + j) * first * second, magnitude = MAGNITUDE(coefficient);
        MASK counts = magnitude >= SPLAT(SMALLEST_COEFFICIENT);
        gap = CHOOSE(counts, gap, SPLAT(LARGEST_GAP));
        STORE(gaps + j, gap);
        STORE(scaled + j, CHOOSE(counts, coefficient, SPLAT(0.0)));
        VECTOR component = magnitude * per_radius, bound = component - gap;
        lower = LARGER(bound, lower);
        largest = LARGER(component, largest);
    }
    problem->lower = LEVEL(largest_lane)(lower);
    problem->upper = 2.0 * sqrt((double)n_terms) * LEVEL(largest_lane)(largest);
}

static inline TARGET double LEVEL(sum_parts)(const VECTOR *parts)
{
    double lanes[LANES];
    for (int i = 0; i < PARTS; i++)
        STORE(lanes + i * WIDTH, parts[i]);
    return sum_lanes(lanes);
}

static TARGET power_sums LEVEL(add_powers)(const scaled_problem *problem, double shift)
{
    power_sums total = {0.0, 0.0, 0.0};
    for (ptrdiff_t start = 0; start < problem->n; start += BLOCK) {
        ptrdiff_t stop = start + BLOCK < problem->n ? start + BLOCK : problem->n;
        VECTOR s[PARTS] = {{0.0}}, t[PARTS] = {{0.0}}, v[PARTS] = {{0.0}};
        for (ptrdiff_t j = start; j < stop; j += LANES)
            for (int i = 0; i < PARTS; i++) {
                VECTOR w = SPLAT(1.0) / (LOAD(problem->gaps + j + i * WIDTH) + SPLAT(shift));
                VECTOR q = LOAD(problem->coefficients + j + i * WIDTH) * w;
                VECTOR q2 = q * q, q2w = q2 * w;
                s[i] += q2;
                t[i] += q2w;
                v[i] += q2w * w;
            }
        total.s += LEVEL(sum_parts)(s);
        total.t += LEVEL(sum_parts)(t);
        total.v += LEVEL(sum_parts)(v);
    }
    return total;
}

/* Error-free sum (Knuth): *sum + *rest gains x. */
static inline TARGET void LEVEL(add_exactly)(VECTOR *sum, VECTOR *rest, VECTOR x)
{
    VECTOR before = *sum, after = before + x, added = after - before;
    *sum = after;
    *rest += (before - (after - added)) + (x - added);
}

/* F(shift), its rounding errors carried to first order: a relative error of some 2^-100 of s. */
static TARGET double LEVEL(precise_excess)(const scaled_problem *problem, double shift)
{
    double radius = problem->radius, target = radius * radius;
    VECTOR sums[PARTS] = {{-target}}, rests[PARTS] = {{-fma(radius, radius, -target)}};
    for (ptrdiff_t j = 0; j < problem->n; j += LANES)
        for (int i = 0; i < PARTS; i++) {
            VECTOR d = LOAD(problem->gaps + j + i * WIDTH), d_rest = LOAD(problem->gap_rests + j + i * WIDTH);
            VECTOR coefficient = LOAD(problem->coefficients + j + i * WIDTH);
            LEVEL(add_exactly)(&d, &d_rest, SPLAT(shift));
            VECTOR q = coefficient / d, square = q * q;
            VECTOR q_rest = (MULTIPLY_ADD(-q, d, coefficient) - q * d_rest) / d;
            LEVEL(add_exactly)(&sums[i], &rests[i], square);
            rests[i] += MULTIPLY_ADD(q, q, -square) + SPLAT(2.0) * q * q_rest;
        }
    VECTOR sum = {0.0}, rest = {0.0};
    for (int i = 0; i < PARTS; i++)
        for (int lane = 0; lane < WIDTH; lane++)
            LEVEL(add_exactly)(&sum, &rest, (VECTOR){sums[i][lane]});
    return sum[0] + (rest[0] + LEVEL(sum_parts)(rests));
}

static TARGET void LEVEL(write_solution)(const scaled_problem *problem, double shift, ptrdiff_t n_terms,
                                         double *solution)
{
    const double *gaps = problem->gaps, *coefficients = problem->coefficients;
    const double radius_scale = problem->radius_scale;
    ptrdiff_t j = 0;
    for (; j + WIDTH <= n_terms; j += WIDTH)
        STORE(solution + j, LOAD(coefficients + j) / (LOAD(gaps + j) + SPLAT(shift)) * SPLAT(radius_scale));
    for (; j < n_terms; j++)
        solution[j] = coefficients[j] / (gaps[j] + shift) * radius_scale;
}

static const term_loops LEVEL(loops) = {
    LEVEL(range_of),   LEVEL(largest_magnitude), LEVEL(scale_terms),
    LEVEL(add_powers), LEVEL(precise_excess),    LEVEL(write_solution),
};

#undef LOAD
#undef STORE
#undef PARTS
#undef CHOOSE
#undef LARGER
#undef MAGNITUDE

#endif

#ifndef LEVEL /* once, after them */

#define LEVEL(name) name##_baseline
#define TARGET
#define WIDTH 2
typedef double vector2 __attribute__((vector_size(16), aligned(8), may_alias));
typedef int64_t mask2 __attribute__((vector_size(16), aligned(8), may_alias));
#define VECTOR vector2
#define MASK mask2
#define SPLAT(x) ((VECTOR){(x), (x)})
#define MULTIPLY_ADD(a, b, c) ((VECTOR){fma((a)[0], (b)[0], (c)[0]), fma((a)[1], (b)[1], (c)[1])})
#include "secular.c"
#undef LEVEL
#undef TARGET
#undef WIDTH
#undef VECTOR
#undef MASK
#undef SPLAT
#undef MULTIPLY_ADD

/* Wider vectors than these divide no faster. */
#if DPFAST_HAVE_X86_LEVELS
#define LEVEL(name) name##_avx2
#define TARGET DPFAST_TARGET_AVX2
#define WIDTH 4
typedef int64_t mask4 __attribute__((vector_size(32), aligned(8), may_alias));
typedef double vector4 __attribute__((vector_size(32), aligned(8), may_alias));
#define VECTOR vector4
#define MASK mask4
#define SPLAT(x) ((VECTOR){(x), (x), (x), (x)})
#define MULTIPLY_ADD(a, b, c) ((VECTOR)_mm256_fmadd_pd((__m256d)(a), (__m256d)(b), (__m256d)(c)))
#include "secular.c"
#endif

/* Rounding errors of the gaps, by the error-free difference of Knuth. */
static void find_gap_rests(const scaled_problem *problem, const double *eigenvalues, ptrdiff_t n_terms)
{
    const double first = problem->gap_scale.first, second = problem->gap_scale.second;
    const double guard = problem->guard, origin = guard * problem->origin;
    for (ptrdiff_t j = 0; j < n_terms; j++) {
        double a = guard * eigenvalues[j], difference = a - origin, back = difference + origin;
        double rest = (a - back) - (origin - (back - difference));
        problem->gap_rests[j] = problem->coefficients[j] != 0.0 ? rest * first * second : 0.0;
    }
    for (ptrdiff_t j = n_terms; j < problem->n; j++)
        problem->gap_rests[j] = 0.0;
}

/* The step from the osculating function, or Newton's where that never meets the radius, stretched by *stretch, which
 * then grows. */
static DPFAST_INLINE double secular_step(power_sums sums, double excess, double radius, double *stretch)
{
    double square = sums.t * sums.t - excess * sums.v;
    if (square > 0.0) {
        double root = sqrt(square);
        return sums.t * excess / (root * (root + sums.t));
    }
    double step = *stretch * sums.s * excess / (sums.t * radius * (radius + sqrt(sums.s)));
    *stretch *= STRETCH;
    return step;
}

typedef struct {
    double shift;
    double free_square; /* -F where the shift is 0 */
    int evaluations;
} secular_root;

static secular_root solve_secular(const scaled_problem *problem, const term_loops *loops, const double *eigenvalues,
                                  ptrdiff_t n_terms)
{
    double lower = problem->lower, upper = problem->upper, shift = lower;
    double target = problem->radius * problem->radius;
    double stretch = 1.0;
    int precise = 0;
    for (int evaluations = 1;; evaluations++) {
        power_sums sums = loops->add_powers(problem, shift);
        double excess = precise ? loops->precise_excess(problem, shift) : sums.s - target;
        if (shift == 0.0 && !precise && fabs(excess) * ILL_CONDITIONED <= sums.s) {
            precise = 1;
            find_gap_rests(problem, eigenvalues, n_terms);
            excess = loops->precise_excess(problem, shift);
        }
        if (shift == 0.0 && excess <= 0.0)
            return (secular_root){0.0, -excess, evaluations};
        if (excess >= 0.0)
            lower = shift;
        else
            upper = shift;
        double next = shift + secular_step(sums, excess, problem->radius, &stretch);
        int is_short = fabs(next - shift) <= SHORT_STEP * shift;
        int is_small = fabs(excess) <= (precise ? RESOLVED_TWICE : RESOLVED) * sums.s;
        if ((is_short || is_small) && !precise && sums.s > ILL_CONDITIONED * shift * sums.t) {
            precise = 1;
            find_gap_rests(problem, eigenvalues, n_terms);
            is_short = is_small = 0;
            /* The signs that the bracket came from may have been those of rounding errors. */
            lower = problem->lower;
            upper = problem->upper;
        }
        if (is_short || is_small || evaluations == MAX_EVALUATIONS)
            return (secular_root){next, 0.0, evaluations};
        if (!(next >= lower && next <= upper))
            next = lower > 0.0 ? sqrt(lower) * sqrt(upper) : 0x1p-10 * upper;
        shift = next;
    }
}

/* Solve the problem that eigenvalues, coefficients and radius pose; returns the evaluations it took. */
static int solve_one(scaled_problem *problem, const term_loops *loops, const double *eigenvalues,
                     range eigenvalue_range, const double *coefficients, ptrdiff_t n_terms, double radius, int sphere,
                     double *solution, double *multiplier)
{
    double lowest = eigenvalue_range.lowest;
    int on_boundary = sphere || lowest < 0.0;
    problem->origin = on_boundary ? lowest : 0.0;
    choose_scales(problem, eigenvalue_range, loops->largest_magnitude(coefficients, n_terms), radius);
    loops->scale_terms(problem, eigenvalues, coefficients, n_terms);
    secular_root root = solve_secular(problem, loops, eigenvalues, n_terms);
    loops->write_solution(problem, root.shift, n_terms, solution);
    if (root.shift == 0.0 && on_boundary) {
        ptrdiff_t free_term = 0;
        while (eigenvalues[free_term] != lowest)
            free_term++;
        solution[free_term] = sqrt(root.free_square) * problem->radius_scale;
    }
    scale back = scale_by(-problem->gap_exponent);
    *multiplier = root.shift * back.first * back.second - problem->origin;
    return root.evaluations;
}

static const term_loops *loops_at(int level)
{
#if DPFAST_HAVE_X86_LEVELS
    if (dpfast_resolve_level(level) >= DPFAST_AVX2)
        return &loops_avx2;
#endif
    return &loops_baseline;
}

ptrdiff_t dpfast_secular_workspace(ptrdiff_t n_terms)
{
    return 3 * ((n_terms + LANES - 1) / LANES * LANES);
}

void dpfast_solve_quadratics(const dpfast_quadratics *problems, ptrdiff_t start, ptrdiff_t stop, double *workspace,
                             int level)
{
    const ptrdiff_t n_terms = problems->n_terms, padded = dpfast_secular_workspace(n_terms) / 3;
    const term_loops *loops = loops_at(level);
    scaled_problem problem = {
        .n = padded,
        .gaps = workspace,
        .gap_rests = workspace + padded,
        .coefficients = workspace + 2 * padded,
    };
    range eigenvalue_range = {0.0, 0.0};
    for (ptrdiff_t i = start; i < stop; i++) {
        const double *eigenvalues = problems->eigenvalues + i * problems->eigenvalue_stride;
        double multiplier;
        if (i == start || problems->eigenvalue_stride != 0)
            eigenvalue_range = loops->range_of(eigenvalues, n_terms);
        int evaluations = solve_one(&problem, loops, eigenvalues, eigenvalue_range,
                                    problems->coefficients + i * problems->coefficient_stride, n_terms,
                                    problems->radii[i * problems->radius_stride], problems->sphere,
                                    problems->solutions + i * n_terms, &multiplier);
        if (problems->multipliers)
            problems->multipliers[i] = multiplier;
        if (problems->evaluations)
            problems->evaluations[i] = evaluations;
    }
}

#endif
