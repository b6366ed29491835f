/* Nuclear and Frobenius norms of many small matrices on a CPU. Built and called by native.py.

   Each matrix is read once, as D lines (its smaller side, at most SIDE) of `length` entries, widened to float64, scaled
   and centred, and reduced to its Gram matrix G by a register-blocked product. Eight Gram matrices at a time, one per
   lane of a vector, then go through

       G / tr G  ->  tridiagonal, by Householder reflections  ->  eigenvalues, by square-root-free QL steps

   The QL step is Pal, Walker and Kahan's (Parlett, The Symmetric Eigenvalue Problem, 1980, sec. 8.15), in the form that
   LAPACK's `sterf` documents. With trace 1, absolute thresholds are meaningful. */

#include <math.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#define SIDE 32
#define LANES 8
#define NEGLIGIBLE_SQUARE 1e-34 /* an off-diagonal of 1e-17 moves an eigenvalue of trace 1 by less than its rounding */
#define VANISHED 1e-150         /* squares below this are treated as 0 */
#define MOST_STEPS 30           /* per eigenvalue, as LAPACK; 2 to 3 are usual */

typedef double lanes __attribute__((vector_size(8 * LANES)));
typedef int64_t flags __attribute__((vector_size(8 * LANES)));

enum center { CENTER_NONE, CENTER_MEAN, CENTER_FIRST };

typedef struct {
    const void *first, *table; /* the stack; or each matrix's first row, and the table of its other rows */
    const int64_t *index;      /* (count, rows - 1) into the table, or NULL for a stack */
    int64_t inner, rows, columns;
    int64_t stride_outer, stride_inner, stride_row, stride_column, stride_table; /* in entries */
    int64_t is_double, center;
    double *ratio, *frobenius;
    int32_t *exponent; /* the Frobenius norm is frobenius * 2^exponent */
} job;

static inline lanes all(double x) { return (lanes){x, x, x, x, x, x, x, x}; }

static inline lanes pick(flags mask, lanes yes, lanes no)
{
    return (lanes)(((flags)yes & mask) | ((flags)no & ~mask));
}

static inline lanes root(lanes x)
{
    lanes y = x;
    for (int l = 0; l < LANES; l++) y[l] = sqrt(x[l]);
    return y;
}

static inline int any(flags mask)
{
    int64_t found = 0;
    for (int l = 0; l < LANES; l++) found |= mask[l];
    return found != 0;
}

static int64_t row_start(const job *work, int64_t b, int64_t row, const void **base)
{
    *base = work->first;
    if (work->index && row > 0) {
        *base = work->table;
        return work->index[b * (work->rows - 1) + row - 1] * work->stride_table;
    }
    return b / work->inner * work->stride_outer + b % work->inner * work->stride_inner + row * work->stride_row;
}

/* Matrix b as lines of float64 with `pitch` entries each, zero beyond the length. */
static void load(const job *work, int64_t b, double *x, int64_t pitch)
{
    int upright = work->rows <= work->columns;
    int64_t step = upright ? 1 : pitch, side = upright ? work->rows : work->columns;
    int64_t length = upright ? work->columns : work->rows;
    for (int64_t row = 0; row < work->rows; row++) {
        const void *base;
        int64_t start = row_start(work, b, row, &base), stride = work->stride_column;
        double *to = x + (upright ? row * pitch : row);
        if (work->is_double) {
            const double *from = (const double *)base + start;
            for (int64_t c = 0; c < work->columns; c++) to[c * step] = from[c * stride];
        } else if (upright && stride == 1) {
            const float *from = (const float *)base + start;
            for (int64_t c = 0; c < work->columns; c++) to[c] = from[c];
        } else {
            const float *from = (const float *)base + start;
            for (int64_t c = 0; c < work->columns; c++) to[c * step] = from[c * stride];
        }
    }
    for (int64_t i = 0; i < side; i++)
        for (int64_t k = length; k < pitch; k++) x[i * pitch + k] = 0;
}

/* Bring the largest entry into [1/2, 1) by a power of two, which rounds nothing; its exponent. */
static int near_one(double *x, int64_t size)
{
    double peak = 0;
    int exponent = 0;
    for (int64_t k = 0; k < size; k++) peak = fabs(x[k]) > peak ? fabs(x[k]) : peak;
    if (peak > 0 && peak < INFINITY) frexp(peak, &exponent);
    double half = ldexp(1, -exponent / 2), rest = ldexp(1, -exponent - -exponent / 2);
    if (exponent)
        for (int64_t k = 0; k < size; k++) x[k] = x[k] * half * rest;
    return exponent;
}

/* Subtract the first row, then where asked the mean of what is left: nearly equal rows lose nothing to rounding. */
static void subtract(const job *work, double *x, int64_t side, int64_t length, int64_t pitch)
{
    if (work->rows <= work->columns) {
        double mean[256];
        for (int64_t from = 0; from < length; from += 256) {
            int64_t width = length - from < 256 ? length - from : 256;
            memset(mean, 0, sizeof mean);
            for (int64_t i = side - 1; i >= 0; i--)
                for (int64_t k = 0; k < width; k++) mean[k] += x[i * pitch + from + k] -= x[from + k];
            if (work->center == CENTER_MEAN)
                for (int64_t i = 0; i < side; i++)
                    for (int64_t k = 0; k < width; k++) x[i * pitch + from + k] -= mean[k] / (double)side;
        }
        return;
    }
    for (int64_t i = 0; i < side; i++) {
        double *line = x + i * pitch, first = line[0], sum = 0;
        for (int64_t k = 0; k < length; k++) sum += line[k] -= first;
        if (work->center == CENTER_MEAN)
            for (int64_t k = 0; k < length; k++) line[k] -= sum / (double)length;
    }
}

/* What will be read next, fetched a line at a time while there is arithmetic to do. */
typedef struct {
    const char *at, *end;
} ahead;

static inline __attribute__((always_inline)) void dots(
    const double *x, int64_t pitch, int64_t i, int64_t j, const int high, const int wide, lanes g[][SIDE], int lane,
    ahead *next)
{
    lanes sums[4][4];
    for (int a = 0; a < high; a++)
        for (int c = 0; c < wide; c++) sums[a][c] = all(0);
    for (int64_t k = 0; k < pitch - LANES; k += LANES) {
        lanes left[4], right[4];
        if (next->at < next->end) {
            __builtin_prefetch(next->at);
            next->at += 64;
        }
        for (int a = 0; a < high; a++) left[a] = *(const lanes *)(x + (i + a) * pitch + k);
        for (int c = 0; c < wide; c++) right[c] = *(const lanes *)(x + (j + c) * pitch + k);
        for (int a = 0; a < high; a++)
            for (int c = 0; c < wide; c++) sums[a][c] += left[a] * right[c];
    }
    for (int a = 0; a < high; a++)
        for (int c = 0; c < wide; c++) {
            double total = 0;
            for (int l = 0; l < LANES; l++) total += sums[a][c][l];
            g[i + a][j + c][lane] = g[j + c][i + a][lane] = total;
        }
}

/* Where matrix b lies, if its rows lie behind each other. */
static ahead whole(const job *work, int64_t b)
{
    const void *base;
    int64_t start = row_start(work, b, 0, &base), size = work->is_double ? 8 : 4;
    if (work->index || work->stride_column != 1 || work->stride_row != work->columns) return (ahead){0, 0};
    const char *at = (const char *)base + start * size;
    return (ahead){at, at + work->rows * work->columns * size};
}

/* Lane `lane` of g becomes the Gram matrix of the lines. */
static void gram(const double *x, int64_t side, int64_t pitch, lanes g[][SIDE], int lane, ahead next)
{
    for (int64_t i = 0; i < side; i += 4)
        for (int64_t j = 0; j <= i; j += 4) {
            int high = side - i < 4 ? (int)(side - i) : 4, wide = side - j < 4 ? (int)(side - j) : 4;
            switch (high * 8 + wide) {
#define CASE(a, c) case a * 8 + c: dots(x, pitch, i, j, a, c, g, lane, &next); break;
                CASE(1, 1) CASE(2, 2) CASE(3, 3) CASE(4, 4) CASE(1, 4) CASE(2, 4) CASE(3, 4)
#undef CASE
            }
        }
}

static void tridiagonal(lanes a[][SIDE], int64_t side, lanes *d, lanes *e)
{
    for (int64_t k = 0; k < side; k++) {
        lanes square = all(0), v[SIDE], p[SIDE], dot = all(0);
        d[k] = a[k][k];
        for (int64_t i = k + 1; i < side; i++) square += a[k][i] * a[k][i];
        flags kept = square > all(VANISHED);
        e[k] = square = pick(kept, square, all(0));
        if (k + 2 >= side || !any(kept)) continue; /* one entry beside the diagonal, or none: nothing to reflect */
        lanes head = a[k][k + 1], length = root(square), size = pick(head < all(0), -head, head);
        lanes beta = pick(kept, all(1) / pick(kept, square + size * length, all(1)), all(0));
        for (int64_t i = k + 1; i < side; i++) v[i] = a[k][i];
        v[k + 1] = head + pick(head < all(0), -length, length);
        for (int64_t i = k + 1; i < side; i++) {
            lanes sum = all(0);
            for (int64_t j = k + 1; j < side; j++) sum += a[i][j] * v[j];
            p[i] = beta * sum;
            dot += v[i] * p[i];
        }
        lanes part = beta * dot * all(0.5);
        for (int64_t i = k + 1; i < side; i++) p[i] -= part * v[i];
        for (int64_t i = k + 1; i < side; i++)
            for (int64_t j = k + 1; j < side; j++) a[i][j] -= v[i] * p[j] + p[i] * v[j];
    }
}

/* Eigenvalues of the tridiagonal matrices, in d; Pal, Walker and Kahan's QL step. */
static void eigenvalues(lanes *d, lanes *e, int64_t side)
{
    for (int64_t l = 0; l < side - 1; l++) {
        flags live = e[l] > all(NEGLIGIBLE_SQUARE);
        for (int tries = 0; any(live) && tries < MOST_STEPS; tries++) {
            lanes edge = root(pick(live, e[l], all(1))), slope = (d[l + 1] - d[l]) / (edge + edge);
            lanes hypotenuse = root(slope * slope + all(1));
            lanes sigma = d[l] - edge / (slope + pick(slope < all(0), -hypotenuse, hypotenuse));
            lanes cosine = all(1), sine = all(0), gamma = d[side - 1] - sigma, p = gamma * gamma;
            for (int64_t i = side - 2; i >= l; i--) {
                lanes square = e[i], alpha = d[i], r = p + square, before = cosine, old = gamma;
                if (i < side - 2) e[i + 1] = pick(live, sine * r, e[i + 1]);
                flags nothing = r < all(VANISHED), upright = p < all(VANISHED);
                /* One division serves both quotients; r * p stays above 1e-300 and so is exact enough. */
                lanes safe = pick(upright, all(1), p), both = all(1) / (pick(nothing, all(1), r) * safe);
                lanes inverse = safe * both;
                cosine = pick(nothing, all(1), pick(upright, all(0), p * inverse));
                sine = pick(nothing, all(0), pick(upright, all(1), square * inverse));
                lanes growth = pick(upright, all(1), r * (r * both));
                gamma = cosine * (alpha - sigma) - sine * old;
                d[i + 1] = pick(live, old + (alpha - gamma), d[i + 1]);
                p = pick(upright & ~nothing, before * square, gamma * gamma * growth);
            }
            e[l] = pick(live, sine * p, e[l]);
            d[l] = pick(live, sigma + gamma, d[l]);
            live &= e[l] > all(NEGLIGIBLE_SQUARE);
        }
    }
}

static void finish(const job *work, int64_t start, int64_t count, lanes g[][SIDE], int64_t side)
{
    lanes d[SIDE], e[SIDE], trace = all(0), total = all(0);
    for (int64_t i = 0; i < side; i++) trace += g[i][i];
    flags usable = (trace > all(0)) & (trace < all(INFINITY));
    lanes divisor = pick(usable, trace, all(1));
    for (int64_t i = 0; i < side; i++)
        for (int64_t j = 0; j < side; j++) g[i][j] = pick(usable, g[i][j] / divisor, all(0));
    tridiagonal(g, side, d, e);
    eigenvalues(d, e, side);
    for (int64_t i = 0; i < side; i++) total += root(pick(d[i] > all(0), d[i], all(0)));
    for (int64_t l = 0; l < count; l++) {
        double ratio = fmin(fmax(total[l], 1), sqrt((double)side)); /* rounding may leave the bounds by a little */
        int finite = trace[l] >= 0 && trace[l] < INFINITY;
        work->ratio[start + l] = !finite ? NAN : trace[l] > 0 ? ratio : 0;
        work->frobenius[start + l] = finite ? sqrt(trace[l]) : NAN;
    }
}

/* Matrices start to stop; 0, or 1 when there is no memory. */
static int part(const job *work, int64_t start, int64_t stop)
{
    int64_t side = work->rows < work->columns ? work->rows : work->columns;
    int64_t length = work->rows < work->columns ? work->columns : work->rows;
    /* One vector more than needed: lines 4096 bytes apart would fight for the same few places in the cache. */
    int64_t pitch = (length + LANES - 1) / LANES * LANES + LANES;
    double *x = aligned_alloc(64, (size_t)(side * pitch) * sizeof *x);
    lanes(*g)[SIDE] = aligned_alloc(64, SIDE * sizeof *g);
    if (!x || !g) {
        free(x);
        free(g);
        return 1;
    }
    for (int64_t b = start; b < stop; b += LANES) {
        int64_t count = stop - b < LANES ? stop - b : LANES;
        if (count < LANES) memset(g, 0, SIDE * sizeof *g); /* no numbers of others in the empty lanes */
        for (int64_t l = 0; l < count; l++) {
            load(work, b + l, x, pitch);
            int exponent = work->is_double ? near_one(x, side * pitch) : 0;
            if (work->center != CENTER_NONE) {
                subtract(work, x, side, length, pitch);
                if (work->is_double) exponent += near_one(x, side * pitch);
            }
            work->exponent[b + l] = exponent;
            gram(x, side, pitch, g, (int)l, b + l + 1 < stop ? whole(work, b + l + 1) : (ahead){0, 0});
        }
        finish(work, b, count, g, side);
    }
    free(x);
    free(g);
    return 0;
}

/* All matrices, in that many threads; 0, or 1 when there is no memory. */
int norms(const job *work, int64_t count, int64_t threads)
{
    int64_t share = (count + LANES * threads - 1) / (LANES * threads) * LANES;
    int failed = 0;
#pragma omp parallel for num_threads(threads) schedule(static, 1) reduction(| : failed)
    for (int64_t t = 0; t < threads; t++) {
        int64_t stop = (t + 1) * share < count ? (t + 1) * share : count;
        if (t * share < stop) failed |= part(work, t * share, stop);
    }
    return failed;
}
