/* Two raw screens of the Atari to one 84 x 84 picture: what screen.py defines, in one pass. Built and called by
   native_screen.py.

   From top to bottom, each row of the screens becomes greys (one look-up per pixel, or per word of pixels alike), then
   84 weighted sums across; an output row adds up a few of these rows, divides once and is written. A row that repeats
   the one above is not computed again, and neither is an output row all of whose inputs are one row, if the output row
   above came of that row too: both are common, since the console draws few things at a time.

   All sums are of whole numbers and exact in `real` (float where they stay below 2^24, else double), so no order of
   adding and no fused operation changes them. Only the rows in use are kept, and tables are small: the emulator's own
   memory stays in the processor's nearest cache. */

#include <stdint.h>
#include <string.h>
#ifdef __SSSE3__
#include <tmmintrin.h>
#endif

#define SIDE 84   /* pixels of the picture's side */
#define WIDTH 160 /* pixels of a screen's row, in every game */
#define ACROSS 4  /* most pixels of a row that one pixel of the picture is made of */
#define KEPT 8    /* rows in use at most, one more than an output row can have */
#define WORD 8    /* pixels compared at once */

typedef struct {
    int64_t is_double;
    int64_t down;           /* rows that one output row is made of, below KEPT */
    const uint16_t *greys;  /* (256, 256): of a pixel that had these two colours */
    const uint16_t *grey;   /* (256): of a pixel that had one colour; the diagonal of `greys` */
    const int16_t *column_weights; /* (SIDE, ACROSS) */
    const int32_t *column_first;   /* (SIDE): where those begin */
    const double *row_weights;     /* (SIDE, down) */
    const int32_t *row_first;      /* (SIDE) */
    const double *row_sums, *column_sums; /* (SIDE): what the sums are divided by, together */
    double rounding;               /* part of the divisor that is added: 0 drops the fraction, 1/2 rounds */
} tables;

/* The greys of one row of both screens. */
static void look_up(const tables *t, const uint8_t *older, const uint8_t *newer, uint16_t *greys)
{
    for (int x = 0; x < WIDTH; x += WORD) {
        uint64_t old, new;
        memcpy(&old, older + x, WORD);
        memcpy(&new, newer + x, WORD);
        if (old != new) {
            for (int i = 0; i < WORD; i++) greys[x + i] = t->greys[older[x + i] << 8 | newer[x + i]];
        } else if (new == (new << 8 | new >> 56)) {
            uint16_t same = t->grey[newer[x]];
            for (int i = 0; i < WORD; i++) greys[x + i] = same;
        } else {
            for (int i = 0; i < WORD; i++) greys[x + i] = t->grey[newer[x + i]];
        }
    }
}

/* SIDE weighted sums across a row: sums[j] = Σ_k weights[j, k] greys[first[j] + k]. */
static void add_across(const tables *t, const uint16_t *greys, int32_t *sums)
{
#ifdef __SSSE3__
    const __m128i *weights = (const __m128i *)t->column_weights;
    for (int j = 0; j < SIDE; j += 4) {
        const int32_t *first = t->column_first + j;
        __m128i low = _mm_loadl_epi64((const __m128i *)(greys + first[0]));
        __m128i high = _mm_loadl_epi64((const __m128i *)(greys + first[2]));
        low = _mm_unpacklo_epi64(low, _mm_loadl_epi64((const __m128i *)(greys + first[1])));
        high = _mm_unpacklo_epi64(high, _mm_loadl_epi64((const __m128i *)(greys + first[3])));
        low = _mm_madd_epi16(low, _mm_loadu_si128(weights + j / 2));
        high = _mm_madd_epi16(high, _mm_loadu_si128(weights + j / 2 + 1));
        _mm_storeu_si128((__m128i *)(sums + j), _mm_hadd_epi32(low, high));
    }
#else
    for (int j = 0; j < SIDE; j++) {
        const int16_t *weights = t->column_weights + j * ACROSS;
        const uint16_t *from = greys + t->column_first[j];
        int32_t sum = 0;
        for (int k = 0; k < ACROSS; k++) sum += weights[k] * from[k];
        sums[j] = sum;
    }
#endif
}

/* One output row of the rows that it is made of. */
#define ADD_DOWN(name, real)                                                                                           \
    static void name(const tables *t, int i, const int32_t *const *rows, uint8_t *out)                                 \
    {                                                                                                                  \
        const double *weights = t->row_weights + i * t->down;                                                          \
        real sums[SIDE] = {0};                                                                                         \
        for (int k = 0; k < t->down; k++) {                                                                            \
            const real weight = weights[k];                                                                            \
            if (weight != 0)                                                                                           \
                for (int j = 0; j < SIDE; j++) sums[j] += weight * (real)rows[k][j];                                   \
        }                                                                                                              \
        const real down = t->row_sums[i], rounding = t->rounding;                                                      \
        for (int j = 0; j < SIDE; j++) {                                                                               \
            const real divisor = down * (real)t->column_sums[j];                                                       \
            out[j] = (uint8_t)(int32_t)((sums[j] + rounding * divisor) / divisor);                                     \
        }                                                                                                              \
    }
ADD_DOWN(add_down_float, float)
ADD_DOWN(add_down_double, double)

/* Write the picture of two screens (height, WIDTH) of colour indices into `out` (SIDE, SIDE). */
void picture(const tables *t, const uint8_t *older, const uint8_t *newer, uint8_t *out)
{
    int32_t kept[KEPT][SIDE];
    const int32_t *row_of[KEPT]; /* of screen row y, at y % KEPT */
    int64_t computed = 0, read = 0;
    const int32_t *alone_above = NULL; /* the one row that the output row above was made of */
    for (int i = 0; i < SIDE; i++) {
        int64_t first = t->row_first[i];
        for (; read < first + t->down; read++) {
            const uint8_t *old = older + read * WIDTH, *new = newer + read * WIDTH;
            if (read > 0 && !memcmp(new, new - WIDTH, WIDTH) && !memcmp(old, old - WIDTH, WIDTH)) {
                row_of[read % KEPT] = row_of[(read - 1) % KEPT];
                continue;
            }
            uint16_t greys[WIDTH];
            int32_t *sums = kept[computed++ % KEPT];
            look_up(t, old, new, greys);
            add_across(t, greys, sums);
            row_of[read % KEPT] = sums;
        }
        const int32_t *rows[KEPT], *alone = row_of[first % KEPT];
        for (int k = 0; k < t->down; k++) {
            rows[k] = row_of[(first + k) % KEPT];
            if (rows[k] != alone) alone = NULL;
        }
        uint8_t *row = out + i * SIDE;
        if (alone && alone == alone_above) memcpy(row, row - SIDE, SIDE);
        else if (t->is_double) add_down_double(t, i, rows, row);
        else add_down_float(t, i, rows, row);
        alone_above = alone;
    }
}
