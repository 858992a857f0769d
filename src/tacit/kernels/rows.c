/* Rows of per-record gradients: their weighted sum, and each one's sum of squares; every product and sum in double.

   In double precision the squares of floats neither overflow nor vanish, and the sum across records lets no record
   change the rounding of the others by more than 2^-53. Both are made of a fixed order of additions, whatever the
   number of threads. */

#include <stdlib.h>
#include <string.h>

#define COLUMNS 2048    /* that one thread sums at a time: their sums stay in the first-level cache */
#define ROWS 4          /* at a time, so that a sum is read and written once for all of them */
#define PIECE (1 << 13) /* of a row: a thread's work, so that one long row keeps all of them busy */
#define LANES 16

typedef float Half __attribute__((vector_size(4 * LANES / 2), aligned(4)));
typedef double Doubles __attribute__((vector_size(8 * LANES / 2)));
typedef long Places __attribute__((vector_size(8 * LANES / 2)));

/* to[c] += factor * row[c], for ROWS rows */
static void add_rows(const float *const *rows, const double *factors, double *restrict to, long columns) {
    const float *restrict a = rows[0], *restrict b = rows[1], *restrict c = rows[2], *restrict d = rows[3];
    for (long i = 0; i < columns; i++)
        to[i] += (factors[0] * (double)a[i] + factors[1] * (double)b[i]) + (factors[2] * (double)c[i] + factors[3] * (double)d[i]);
}

static void add_row(const float *restrict row, double factor, double *restrict to, long columns) {
    for (long i = 0; i < columns; i++) to[i] += factor * (double)row[i];
}

/* to[size] = sum of factor * row, in doubles or, `single`, rounded to floats; rows of factor 0 are not looked at, because
   0 * inf would be NaN */
void tacit_weighted_rows(const float *rows, const double *factors, long records, long size, int single, void *to,
                         int threads) {
    long blocks = (size + COLUMNS - 1) / COLUMNS;
#pragma omp parallel for num_threads(threads) schedule(static) if (threads > 1)
    for (long block = 0; block < blocks; block++) {
        long first = block * COLUMNS, columns = size - first < COLUMNS ? size - first : COLUMNS, held = 0;
        double sum[COLUMNS], weights[ROWS];
        const float *some[ROWS];
        memset(sum, 0, sizeof(double) * (size_t)columns);
        for (long r = 0; r < records; r++) {
            if (factors[r] == 0.0) continue;
            some[held] = rows + r * size + first, weights[held++] = factors[r];
            if (held == ROWS) add_rows(some, weights, sum, columns), held = 0;
        }
        for (long k = 0; k < held; k++) add_row(some[k], weights[k], sum, columns);
        if (single)
            for (long i = 0; i < columns; i++) ((float *)to)[first + i] = (float)sum[i];
        else memcpy((double *)to + first, sum, sizeof(double) * (size_t)columns);
    }
}

double tacit_square_sum(const float *row, long count); /* for other kernels too */

double tacit_square_sum(const float *restrict row, long count) {
    Doubles parts[2] = {{0.0}};
    double total = 0.0;
    long i = 0;
    for (; i + LANES <= count; i += LANES)
        for (int part = 0; part < 2; part++) {
            const Doubles some = __builtin_convertvector(*(const Half *)(row + i + part * LANES / 2), Doubles);
            parts[part] += some * some;
        }
    for (; i < count; i++) total += (double)row[i] * (double)row[i];
    if (count < LANES) return total;
    Doubles sum = parts[0] + parts[1]; /* in pairs: one after the other they would wait */
    sum += __builtin_shuffle(sum, (Places){4, 5, 6, 7, 0, 1, 2, 3});
    sum += __builtin_shuffle(sum, (Places){2, 3, 0, 1, 6, 7, 4, 5});
    return total + (sum[0] + sum[1]);
}

/* 0, or 1 where memory is short */
int tacit_row_squares(const float *rows, long records, long size, double *squares, int threads) {
    if (records == 0) return 0;
    long pieces = size > 0 ? (size + PIECE - 1) / PIECE : 1;
    double *parts = pieces == 1 ? squares : malloc(sizeof(double) * (size_t)(records * pieces));
    if (parts == NULL) return 1;
#pragma omp parallel for num_threads(threads) schedule(static) if (threads > 1)
    for (long k = 0; k < records * pieces; k++) {
        long first = k % pieces * PIECE;
        parts[k] = tacit_square_sum(rows + k / pieces * size + first, size - first < PIECE ? size - first : PIECE);
    }
    if (pieces == 1) return 0;
    for (long r = 0; r < records; r++) {
        squares[r] = 0.0;
        for (long k = 0; k < pieces; k++) squares[r] += parts[r * pieces + k];
    }
    free(parts);
    return 0;
}
