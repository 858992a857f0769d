/* Squared norms of sums of outer products, record by record: |sum_t g_t x_t^T|^2 = sum over pairs (t, s) of
   (x_t . x_s) (g_t . g_s). The products of all pairs are symmetric, so each pair is formed once.

   A product adds LANES lanes in single precision, each over every LANES-th feature of a run of at most RUN features,
   then the lanes, two by two, and the runs in double: it errs by at most RUN / LANES + log2(LANES) + 1 roundings of
   |x_t| |x_s|, 36 with 8 lanes. Products of a position with itself add up to |x|^2 and |g|^2, which come with them. */

#include <string.h>

#ifdef __AVX512F__
#define LANES 16
#else
#define LANES 8
#endif
#define RUN 256
#define SIDE 4 /* positions in a tile: SIDE x ACROSS products at a time stay in registers, as many as there are lanes */
#define ACROSS (LANES / SIDE)
#define INLINE static inline __attribute__((always_inline))

typedef float Vector __attribute__((vector_size(4 * LANES), aligned(4)));
typedef int Places __attribute__((vector_size(4 * LANES)));
typedef double Wide __attribute__((vector_size(8 * LANES), aligned(8)));

#if LANES == 16
static const Places LANE = {0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15};
#else
static const Places LANE = {0, 1, 2, 3, 4, 5, 6, 7};
#endif

/* What is loaded once should not be loaded again for every product, as the compiler would have it */
#ifdef __AVX__
#define IN_REGISTER(vector) __asm__("" : "+v"(vector))
#else
#define IN_REGISTER(vector)
#endif

/* In every 2 * half lanes: the two halves of a, added, and then those of b */
INLINE Vector folded(Vector a, Vector b, const int half) {
    const Places of_b = ((LANE & half) != 0) & LANES;
    return __builtin_shuffle(a, b, (LANE & ~half) + of_b) + __builtin_shuffle(a, b, (LANE | half) + of_b);
}

/* The sum of the lanes of each vector, in the lane of its number */
INLINE Vector sums_of_lanes(Vector *sums) {
#if LANES == 16
    for (int i = 0; i < 8; i++) sums[i] = folded(sums[i], sums[i + 8], 8);
#endif
    for (int i = 0; i < 4; i++) sums[i] = folded(sums[i], sums[i + 4], 4);
    for (int i = 0; i < 2; i++) sums[i] = folded(sums[i], sums[i + 2], 2);
    return folded(sums[0], sums[1], 1);
}

/* The lanes of the products of a run, in registers of its own: beside the masks of the folds they would not fit */
static __attribute__((noinline)) void add_run(const float *const *a, const float *const *b, long first, long last,
                                              Vector *sums) {
    Vector sum[SIDE][ACROSS] = {{{0}}};
    for (long k = first; k < last; k += LANES) {
        Vector left[SIDE], right[ACROSS];
        for (int i = 0; i < SIDE; i++) left[i] = *(const Vector *)(a[i] + k);
        for (int j = 0; j < ACROSS; j++) right[j] = *(const Vector *)(b[j] + k);
        for (int i = 0; i < SIDE; i++) IN_REGISTER(left[i]);
        for (int j = 0; j < ACROSS; j++) IN_REGISTER(right[j]);
        for (int i = 0; i < SIDE; i++)
            for (int j = 0; j < ACROSS; j++) sum[i][j] += left[i] * right[j];
    }
    memcpy(sums, sum, sizeof sum);
}

/* The products rows[t + i] . rows[s + j] in the lanes i * ACROSS + j; positions beyond the last are the last once more */
static Wide tile(const float *rows, long positions, long width, long t, long s) {
    const float *a[SIDE], *b[ACROSS];
    for (int i = 0; i < SIDE; i++) a[i] = rows + (t + i < positions ? t + i : positions - 1) * width;
    for (int j = 0; j < ACROSS; j++) b[j] = rows + (s + j < positions ? s + j : positions - 1) * width;
    Wide products = {0};
    long whole = width / LANES * LANES;
    for (long first = 0; first < whole; first += RUN) {
        Vector sums[LANES];
        add_run(a, b, first, first + RUN < whole ? first + RUN : whole, sums);
        products += __builtin_convertvector(sums_of_lanes(sums), Wide);
    }
    for (long rest = whole; rest < width; rest++)
        for (int i = 0; i < SIDE; i++)
            for (int j = 0; j < ACROSS; j++) products[i * ACROSS + j] += (double)a[i][rest] * (double)b[j][rest];
    return products;
}

typedef struct {
    double of_product, of_x, of_g;
} Squares;

static Squares squares_of_one(const float *x, const float *g, long positions, long in, long out) {
    Squares total = {0.0, 0.0, 0.0};
    for (long t = 0; t < positions; t += SIDE)
        for (long s = 0; s < t + SIDE && s < positions; s += ACROSS) {
            const Wide of_x = tile(x, positions, in, t, s), of_g = tile(g, positions, out, t, s), of_both = of_x * of_g;
            for (long i = 0; i < SIDE && t + i < positions; i++)
                for (long j = 0; j < ACROSS && s + j <= t + i; j++) {
                    const long at = i * ACROSS + j;
                    if (s + j < t + i) total.of_product += 2.0 * of_both[at];
                    else total.of_product += of_both[at], total.of_x += of_x[at], total.of_g += of_g[at];
                }
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
