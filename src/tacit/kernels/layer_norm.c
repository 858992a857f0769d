/* Gradients of the scale and the shift of a layer normalisation, record by record: sums over its positions of
   g (x - mean) spread, and of g. Added in single precision over RUN positions, and then the runs. */

#define LANES 16
#define RUN 64

typedef float Vector __attribute__((vector_size(4 * LANES), aligned(4)));

static void add_positions(const float *x, const float *g, const float *mean, const float *spread, long positions,
                          long size, float *scale, float *shift) {
    long c = 0;
    for (; c + LANES <= size; c += LANES) {
        Vector one = {0}, two = {0};
        for (long p = 0; p < positions; p++) {
            const Vector back = *(const Vector *)(g + p * size + c);
            one += back;
            two += back * ((*(const Vector *)(x + p * size + c) - mean[p]) * spread[p]);
        }
        *(Vector *)(shift + c) += one, *(Vector *)(scale + c) += two;
    }
    for (; c < size; c++)
        for (long p = 0; p < positions; p++) {
            const float back = g[p * size + c];
            shift[c] += back, scale[c] += back * ((x[p * size + c] - mean[p]) * spread[p]);
        }
}

void tacit_layer_norm(const float *x, const float *g, const float *mean, const float *spread, long records,
                      long positions, long size, float *scale, float *shift, int threads) {
#pragma omp parallel for num_threads(threads) schedule(static) if (threads > 1)
    for (long r = 0; r < records; r++) {
        for (long c = 0; c < size; c++) scale[r * size + c] = shift[r * size + c] = 0.0f;
        for (long p = 0; p < positions; p += RUN) {
            const long at = r * positions + p, count = p + RUN < positions ? RUN : positions - p;
            add_positions(x + at * size, g + at * size, mean + at, spread + at, count, size, scale + r * size,
                          shift + r * size);
        }
    }
}
