/* Squared norms of sums of outer products, record by record: |sum_t g_t x_t^T|^2 = sum over pairs (t, s) of
   (x_t . x_s) (g_t . g_s). The products of all pairs are symmetric, so each pair is formed once.

   A product adds LANES lanes in single precision, each over every LANES-th feature of a run of at most RUN features,
   and runs and lanes in double: it errs by at most RUN / LANES + 1 roundings of |x_t| |x_s|, 33 with 8 lanes. */

#include <string.h>

#ifdef __AVX512F__
#define LANES 16
#else
#define LANES 8
#endif
#define RUN 256
#define SIDE 4 /* positions in a tile: 4 x 2 products at a time stay in registers */

typedef float Vector __attribute__((vector_size(4 * LANES), aligned(4)));
typedef double Wide __attribute__((vector_size(8 * LANES)));

typedef double Half __attribute__((vector_size(4 * LANES)));
typedef double Quarter __attribute__((vector_size(2 * LANES)));

/* half by half: one lane after the other they would wait for each other */
static double total(Wide lanes) {
    Half halves[2];
    Quarter quarters[2];
    memcpy(halves, &lanes, sizeof halves);
    halves[0] += halves[1];
    memcpy(quarters, halves, sizeof quarters);
    quarters[0] += quarters[1];
    double sum = 0.0;
    for (int lane = 0; lane < LANES / 4; lane++) sum += quarters[0][lane];
    return sum;
}

/* products[i][j] += rows[t + i] . rows[s + j]; positions beyond the last are the last once more */
static void tile(const float *rows, long positions, long width, long t, long s, double products[SIDE][2]) {
    const float *a[SIDE], *b[2];
    for (int i = 0; i < SIDE; i++) a[i] = rows + (t + i < positions ? t + i : positions - 1) * width;
    for (int j = 0; j < 2; j++) b[j] = rows + (s + j < positions ? s + j : positions - 1) * width;
    Wide lanes[SIDE][2] = {{{0}}};
    long whole = width / LANES * LANES;
    for (long first = 0; first < whole; first += RUN) {
        long last = first + RUN < whole ? first + RUN : whole;
        Vector sum[SIDE][2] = {{{0}}};
        for (long k = first; k < last; k += LANES) {
            Vector right[2] = {*(const Vector *)(b[0] + k), *(const Vector *)(b[1] + k)};
            for (int i = 0; i < SIDE; i++) {
                Vector left = *(const Vector *)(a[i] + k);
                for (int j = 0; j < 2; j++) sum[i][j] += left * right[j];
            }
        }
        for (int i = 0; i < SIDE; i++)
            for (int j = 0; j < 2; j++) lanes[i][j] += __builtin_convertvector(sum[i][j], Wide);
    }
    for (int i = 0; i < SIDE; i++)
        for (int j = 0; j < 2; j++) {
            products[i][j] += total(lanes[i][j]);
            for (long rest = whole; rest < width; rest++) products[i][j] += (double)a[i][rest] * (double)b[j][rest];
        }
}

static double square_of_one(const float *x, const float *g, long positions, long in, long out) {
    double total = 0.0;
    for (long t = 0; t < positions; t += SIDE)
        for (long s = 0; s < t + SIDE && s < positions; s += 2) {
            double of_x[SIDE][2] = {{0.0}}, of_g[SIDE][2] = {{0.0}};
            tile(x, positions, in, t, s, of_x);
            tile(g, positions, out, t, s, of_g);
            for (long i = 0; i < SIDE && t + i < positions; i++)
                for (long j = 0; j < 2 && s + j < positions; j++)
                    if (s + j <= t + i) total += (s + j < t + i ? 2.0 : 1.0) * of_x[i][j] * of_g[i][j];
        }
    return total;
}

void tacit_gram_squares(const float *x, const float *g, long records, long positions, long in, long out, double *squares,
                        int threads) {
#pragma omp parallel for num_threads(threads) schedule(static) if (threads > 1)
    for (long r = 0; r < records; r++)
        squares[r] = square_of_one(x + r * positions * in, g + r * positions * out, positions, in, out);
}
