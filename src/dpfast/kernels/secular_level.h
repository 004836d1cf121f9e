/* Bodies of the loops of secular.c for one vector width; see there. Included once per level.
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
