/* Squared norms of sums of outer products, record by record: |sum_t g_t x_t^T|^2 = sum over pairs (t, s) of
   (x_t . x_s) (g_t . g_s). The products of all pairs are symmetric, so those of four positions with four others are
   formed once.

   At most RUN features of at most BLOCK positions are laid out anew, by fours of both: a vector then holds four
   features of several positions, and a product has four sums in single precision, each over every fourth feature of
   the run. They are added two by two, and the runs in double: it errs by at most RUN / 4 + 2 + 1 = 35 roundings of
   |x_t| |x_s|. Products of a position with itself add up to |x|^2 and |g|^2, which come with them. */

#include <stdint.h>
#include <string.h>
#ifdef __AVX__
#include <immintrin.h>
#endif

#ifdef __AVX512F__
#define LANES 16
#define WIDEST 4 /* fours in a tile: the products with them stay in registers */
#else
#define LANES 8
#define WIDEST 1
#endif
#define RUN 128
#define FOURS 16 /* of positions in a block: so much of a run stays in the first-level cache */
#define BLOCK (4 * FOURS)
#define ACROSS (16 / LANES) /* vectors in four features of four positions */
#define INLINE static inline __attribute__((always_inline))
#define UNROLLED _Pragma("GCC unroll 8")

typedef float Vector __attribute__((vector_size(4 * LANES)));
typedef int Places __attribute__((vector_size(4 * LANES)));
typedef struct {
    float of[RUN / 4][4][4]; /* by features, positions, features */
} Four __attribute__((aligned(64)));
typedef double Products[FOURS][FOURS][16]; /* of two blocks, by fours of both */

#if LANES == 16
static const Places EVEN = {0, 2, 16, 18, 4, 6, 20, 22, 8, 10, 24, 26, 12, 14, 28, 30};
#else
static const Places EVEN = {0, 2, 8, 10, 4, 6, 12, 14};
#endif

/* What is loaded once should not be loaded again for every product, as the compiler would have it */
#ifdef __AVX__
#define IN_REGISTER(vector) __asm__("" : "+v"(vector))
#else
#define IN_REGISTER(vector)
#endif

INLINE long least(long a, long b) { return a < b ? a : b; }

/* ---- four positions with a few fours ---- */

/* In every four lanes: two sums of neighbours in a, then two of those in b */
INLINE Vector folded(Vector a, Vector b) { return __builtin_shuffle(a, b, EVEN) + __builtin_shuffle(a, b, EVEN + 1); }

INLINE Vector repeated(const float *four) {
#if defined(__AVX512F__)
    return (Vector)_mm512_broadcast_f32x4(_mm_load_ps(four));
#elif defined(__AVX__)
    return (Vector)_mm256_broadcast_ps((const __m128 *)four);
#else
    return (Vector){four[0], four[1], four[2], four[3], four[0], four[1], four[2], four[3]};
#endif
}

/* to[j][4 * k + i] = the product of a run of position i of t with position k of s[j] */
INLINE void tile(const int columns, const Four *t, const Four *s, long fours, float (*to)[16]) {
    Vector sum[4][WIDEST * ACROSS];
    UNROLLED for (int i = 0; i < 4; i++)
        UNROLLED for (int j = 0; j < columns * ACROSS; j++) sum[i][j] = (Vector){0};
    _Pragma("GCC unroll 2") for (long c = 0; c < fours; c++) {
        Vector right[WIDEST * ACROSS];
        UNROLLED for (int j = 0; j < columns * ACROSS; j++) {
            right[j] = ((const Vector *)s[j / ACROSS].of[c])[j % ACROSS];
            IN_REGISTER(right[j]);
        }
        UNROLLED for (int i = 0; i < 4; i++) {
            Vector left = repeated(t->of[c][i]);
            IN_REGISTER(left);
            UNROLLED for (int j = 0; j < columns * ACROSS; j++) sum[i][j] += left * right[j];
        }
    }
    UNROLLED for (int j = 0; j < columns * ACROSS; j++)
        ((Vector *)to)[j] = folded(folded(sum[0][j], sum[1][j]), folded(sum[2][j], sum[3][j]));
}

#define TILE(columns)                                                                                          \
    static __attribute__((noinline)) void tile_##columns(const Four *t, const Four *s, long fours, float (*to)[16]) { \
        tile(columns, t, s, fours, to);                                                                        \
    }
TILE(1)
#if WIDEST == 4
TILE(2)
TILE(3)
TILE(4)
#endif

static void row_of_tiles(const Four *t, const Four *s, long many, long fours, float (*to)[16]) {
    for (long j = 0; j < many; j += WIDEST)
        switch (least(many - j, WIDEST)) {
        case 1: tile_1(t, s + j, fours, to + j); break;
#if WIDEST == 4
        case 2: tile_2(t, s + j, fours, to + j); break;
        case 3: tile_3(t, s + j, fours, to + j); break;
        default: tile_4(t, s + j, fours, to + j);
#endif
        }
}

/* ---- blocks of positions ---- */

static const float NOTHING[RUN] = {0};

/* The positions from `first` and their features from `from` on; zeros beyond both. Returns the fours of features. */
static long lay_out(const float *rows, long positions, long width, long first, long from, Four *to) {
    const long features = least(width - from, RUN), whole = features / 4, rest = features % 4;
    for (long p = first; p < positions && p < first + BLOCK; p += 4, to++) {
        const float *row[4];
        for (int i = 0; i < 4; i++) row[i] = p + i < positions ? rows + (p + i) * width + from : NOTHING;
        for (long c = 0; c < whole; c++) {
#ifdef __AVX512F__
            __m512 all = _mm512_castps128_ps512(_mm_loadu_ps(row[0] + 4 * c));
            all = _mm512_insertf32x4(all, _mm_loadu_ps(row[1] + 4 * c), 1);
            all = _mm512_insertf32x4(all, _mm_loadu_ps(row[2] + 4 * c), 2);
            *(Vector *)to->of[c] = (Vector)_mm512_insertf32x4(all, _mm_loadu_ps(row[3] + 4 * c), 3);
#else
            for (int i = 0; i < 4; i++) memcpy(to->of[c][i], row[i] + 4 * c, 16);
#endif
        }
        for (int i = 0; rest && i < 4; i++)
            for (int k = 0; k < 4; k++) to->of[whole][i][k] = k < rest ? row[i][4 * whole + k] : 0.0f;
    }
    return whole + (rest > 0);
}

/* What is laid out next comes from far: the same rows of the next run or, after the last, of the next record. */
INLINE void fetch(const float *rows, long positions, long width, long first, long from) {
    const long next = from + RUN < width ? from + RUN : positions * width;
    for (long p = first; p < first + 4; p++)
        for (long k = 0; k < least(width, RUN); k += 16)
            __builtin_prefetch((const void *)((uintptr_t)rows + 4 * (uintptr_t)(next + p * width + k)), 0, 2);
}

/* The products of the positions from t on with those from s on: of a block with itself or with one before it */
static void products_of_blocks(const float *rows, long positions, long width, long t, long s, Products of) {
    Four of_t[FOURS], of_s[FOURS];
    const long here = least((positions - t + 3) / 4, FOURS);
    for (long from = 0; from < width; from += RUN) {
        const long fours = lay_out(rows, positions, width, t, from, of_t);
        if (s < t) lay_out(rows, positions, width, s, from, of_s);
        for (long i = 0; i < here; i++) {
            float found[FOURS][16] __attribute__((aligned(64)));
            const long many = s < t ? FOURS : i + 1;
            if (s == 0) fetch(rows, positions, width, t + 4 * i, from);
            row_of_tiles(of_t + i, s < t ? of_s : of_t, many, fours, found);
            const float *more = found[0];
            double *all = of[i][0];
            for (long k = 0; k < 16 * many; k++) all[k] = (from ? all[k] : 0.0) + (double)more[k];
        }
    }
}

typedef struct {
    double of_product, of_x, of_g;
} Squares;

/* Of the products of a four of positions with others, of which the last may be itself: other pairs come twice. */
INLINE void add_squares(double (*of_x)[16], double (*of_g)[16], long before, int with_itself, Squares *total) {
    double lanes[16] = {0};
    for (long j = 0; j < before; j++)
        for (int k = 0; k < 16; k++) lanes[k] += 2.0 * of_x[j][k] * of_g[j][k];
    if (with_itself) {
        for (int k = 0; k < 16; k++) lanes[k] += of_x[before][k] * of_g[before][k];
        for (int k = 0; k < 16; k += 5) total->of_x += of_x[before][k], total->of_g += of_g[before][k];
    }
    for (int k = 0; k < 16; k++) total->of_product += lanes[k];
}

static Squares squares_of_one(const float *x, const float *g, long positions, long in, long out) {
    Products of_x __attribute__((aligned(64))), of_g __attribute__((aligned(64)));
    Squares total = {0.0, 0.0, 0.0};
    for (long t = 0; t < positions; t += BLOCK)
        for (long s = 0; s <= t; s += BLOCK) {
            products_of_blocks(x, positions, in, t, s, of_x);
            products_of_blocks(g, positions, out, t, s, of_g);
            for (long i = 0; i < FOURS && t + 4 * i < positions; i++)
                add_squares(of_x[i], of_g[i], s < t ? FOURS : i, s == t, &total);
        }
    return total;
}

/* squares [3, records]: of the sum of products, of x and of g */
void tacit_gram_squares(const float *x, const float *g, long records, long positions, long in, long out, double *squares,
                        int threads) {
#pragma omp parallel for num_threads(threads) schedule(static) if (threads > 1)
    for (long r = 0; r < records; r++) {
        const Squares found = squares_of_one(x + r * positions * in, g + r * positions * out, positions, in, out);
        squares[r] = found.of_product, squares[records + r] = found.of_x, squares[2 * records + r] = found.of_g;
    }
}
