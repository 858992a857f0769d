/* Gradients of the scale and the shift of a group normalisation, row by row: mean, spread, sums; a group stays in the cache.

   shift = sum of g, scale = sum of g (x - mean) / spread, over the places of a channel; mean and spread of its group.
   Lanes are added in single precision over RUN entries, those in double. */

#include <math.h>

#define LANES 16
#define RUN 512

typedef float Vector __attribute__((vector_size(4 * LANES), aligned(4)));

static double lanes_of(Vector part) {
    double total = 0.0;
    for (int lane = 0; lane < LANES; lane++) total += (double)part[lane];
    return total;
}

static float mean_of(const float *x, long count) {
    double total = 0.0;
    for (long i = 0, last; i < count;) {
        Vector part = {0};
        for (last = i + RUN < count ? i + RUN : count; i + LANES <= last; i += LANES) part += *(const Vector *)(x + i);
        for (; i < last; i++) total += (double)x[i];
        total += lanes_of(part);
    }
    return (float)(total / (double)count);
}

static double spread_of(const float *x, long count, float mean, double eps) {
    double total = 0.0;
    for (long i = 0, last; i < count;) {
        Vector part = {0};
        for (last = i + RUN < count ? i + RUN : count; i + LANES <= last; i += LANES) {
            Vector off = *(const Vector *)(x + i) - mean;
            part += off * off;
        }
        for (; i < last; i++) total += (double)(x[i] - mean) * (double)(x[i] - mean);
        total += lanes_of(part);
    }
    return sqrt(total / (double)count + eps);
}

/* sum of g and of g (x - mean) */
static void products(const float *x, const float *g, long count, float mean, double *sum, double *product) {
    for (long i = 0, last; i < count;) {
        Vector one = {0}, two = {0};
        for (last = i + RUN < count ? i + RUN : count; i + LANES <= last; i += LANES) {
            Vector back = *(const Vector *)(g + i);
            one += back;
            two += back * (*(const Vector *)(x + i) - mean);
        }
        for (; i < last; i++) *sum += (double)g[i], *product += (double)g[i] * (double)(x[i] - mean);
        *sum += lanes_of(one), *product += lanes_of(two);
    }
}

void tacit_group_norm(const float *x, const float *g, long rows, long channels, long places, long groups, double eps,
                      float *scale, float *shift, int threads) {
    long size = channels / groups;
#pragma omp parallel for num_threads(threads) schedule(static) if (threads > 1)
    for (long group = 0; group < rows * groups; group++) {
        const float *from = x + group * size * places, *back = g + group * size * places;
        float mean = mean_of(from, size * places);
        double spread = spread_of(from, size * places, mean, eps);
        for (long c = 0; c < size; c++) {
            double of_g = 0.0, of_product = 0.0;
            products(from + c * places, back + c * places, places, mean, &of_g, &of_product);
            scale[group * size + c] = (float)(of_product / spread);
            shift[group * size + c] = (float)of_g;
        }
    }
}
