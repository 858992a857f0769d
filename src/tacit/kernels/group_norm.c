/* Group normalisation, perhaps with the ReLU behind it: forwards, and backwards with the gradients of scale and shift of
   every row. A row's group is read from memory once for each way and stays in the cache.

   y = (x - mean) / spread * weight + bias, mean and spread of the group. From the gradient g by y: shift = sum of g, scale =
   sum of g (x - mean) / spread, over the places of a channel. Lanes are added in single precision over RUN entries, those in
   double. */

#include <math.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#ifdef __AVX512F__
#define LANES 16
#elif defined(__AVX__)
#define LANES 8
#else
#define LANES 4
#endif
#define DEEP 4 /* vectors that are added side by side, because one addition waits for the one before */
#define RUN 1024
#define INLINE static inline __attribute__((always_inline))

typedef float Vector __attribute__((vector_size(4 * LANES), aligned(4)));
typedef int32_t Mask __attribute__((vector_size(4 * LANES), aligned(4)));

typedef struct { /* y of a channel is (x - mean) * slope + bias */
    float mean, slope, bias;
} Channel;

enum { ALONE, ACTIVATED, VALUES, SQUARES }; /* without and with a ReLU; or a sum of x, of (x - mean)^2 */

INLINE Vector whole(const float *from) { return *(const Vector *)from; }

/* The last entries, which fill no vector */
INLINE Vector part(const float *from, long left, float fill) {
    Vector found = (Vector){0} + fill;
    memcpy(&found, from, sizeof(float) * (size_t)left);
    return found;
}

/* What of a gradient passes a ReLU, where its input is above 0 or NaN, as with PyTorch */
INLINE Vector passed(Vector y, Vector g, const int how) { return how == ACTIVATED ? (Vector)((Mask)g & ~(y <= 0.0f)) : g; }

INLINE void add_terms(Vector x, Vector g, Channel k, Vector *one, Vector *two, const int how) {
    const Vector off = x - k.mean;
    if (how == VALUES) *one += x;
    else if (how == SQUARES) *one += off * off;
    else {
        const Vector here = passed(off * k.slope + k.bias, g, how);
        *one += here, *two += here * off;
    }
}

INLINE double lanes_of(const Vector *parts) {
    const Vector lanes = (parts[0] + parts[1]) + (parts[2] + parts[3]);
    double total[LANES];
    for (int lane = 0; lane < LANES; lane++) total[lane] = (double)lanes[lane];
    for (int half = LANES / 2; half > 0; half /= 2)
        for (int lane = 0; lane < half; lane++) total[lane] += total[lane + half];
    return total[0];
}

/* One sum, or those of g and of g (x - mean) */
INLINE void sums(const float *x, const float *g, long count, Channel k, double *one, double *two, const int how) {
    *one = *two = 0.0;
    for (long i = 0; i < count;) {
        const long last = i + RUN < count ? i + RUN : count;
        Vector ones[DEEP] = {{0}}, twos[DEEP] = {{0}};
        for (; i + DEEP * LANES <= last; i += DEEP * LANES)
            for (int v = 0; v < DEEP; v++)
                add_terms(whole(x + i + v * LANES), whole(g + i + v * LANES), k, ones + v, twos + v, how);
        for (; i + LANES <= last; i += LANES) add_terms(whole(x + i), whole(g + i), k, ones, twos, how);
        if (i < last) {
            const Vector rest = part(x + i, last - i, how == VALUES ? 0.0f : k.mean);
            add_terms(rest, part(g + i, last - i, 0.0f), k, ones, twos, how);
            i = last;
        }
        *one += lanes_of(ones);
        if (how < VALUES) *two += lanes_of(twos);
    }
}

static void mean_and_spread(const float *x, long count, double eps, float *mean, double *spread) {
    double sum, squares, none;
    sums(x, x, count, (Channel){0}, &sum, &none, VALUES);
    *mean = (float)(sum / (double)count);
    sums(x, x, count, (Channel){*mean, 0.0f, 0.0f}, &squares, &none, SQUARES);
    *spread = sqrt(squares / (double)count + eps);
}

static void products(const float *x, const float *g, long count, Channel k, double *sum, double *product, int activated) {
    if (activated) sums(x, g, count, k, sum, product, ACTIVATED);
    else sums(x, g, count, k, sum, product, ALONE);
}

INLINE void outputs(const float *x, long count, Channel k, float *to, const int how) {
    for (long i = 0; i < count; i += LANES) {
        const long left = count - i;
        Vector y = ((left < LANES ? part(x + i, left, 0.0f) : whole(x + i)) - k.mean) * k.slope + k.bias;
        y = passed(y, y, how);
        if (left < LANES) memcpy(to + i, &y, sizeof(float) * (size_t)left);
        else *(Vector *)(to + i) = y;
    }
}

/* g becomes the gradient by x: slope * g + (x - mean) * tilt + rest */
INLINE void inputs(const float *x, long count, Channel k, float tilt, float rest, float *g, const int how) {
    for (long i = 0; i < count; i += LANES) {
        const long left = count - i;
        const Vector off = (left < LANES ? part(x + i, left, 0.0f) : whole(x + i)) - k.mean;
        const Vector back = passed(off * k.slope + k.bias, left < LANES ? part(g + i, left, 0.0f) : whole(g + i), how);
        const Vector found = k.slope * back + (off * tilt + rest);
        if (left < LANES) memcpy(g + i, &found, sizeof(float) * (size_t)left);
        else *(Vector *)(g + i) = found;
    }
}

/* Scale and shift alone */
void tacit_group_norm(const float *x, const float *g, long rows, long channels, long places, long groups, double eps,
                      float *scale, float *shift, int threads) {
    const long size = channels / groups;
#pragma omp parallel for num_threads(threads) schedule(static) if (threads > 1)
    for (long group = 0; group < rows * groups; group++) {
        Channel k = {0};
        double spread, of_g, of_product;
        mean_and_spread(x + group * size * places, size * places, eps, &k.mean, &spread);
        for (long c = group * size; c < (group + 1) * size; c++) {
            products(x + c * places, g + c * places, places, k, &of_g, &of_product, 0);
            scale[c] = (float)(of_product / spread), shift[c] = (float)of_g;
        }
    }
}

INLINE Channel channel(float mean, float inverse, const float *weight, const float *bias, long c) {
    return (Channel){mean, weight ? inverse * weight[c] : inverse, bias ? bias[c] : 0.0f};
}

/* y, and of every group its mean and 1 / spread; weight and bias may be NULL */
void tacit_group_norm_forward(const float *x, const float *weight, const float *bias, long rows, long channels, long places,
                              long groups, double eps, int activated, float *to, float *mean, float *inverse, int threads) {
    const long size = channels / groups;
#pragma omp parallel for num_threads(threads) schedule(static) if (threads > 1)
    for (long group = 0; group < rows * groups; group++) {
        double spread;
        mean_and_spread(x + group * size * places, size * places, eps, mean + group, &spread);
        inverse[group] = (float)(1.0 / spread);
        for (long c = group * size; c < (group + 1) * size; c++) {
            const Channel k = channel(mean[group], inverse[group], weight, bias, c % channels);
            if (activated) outputs(x + c * places, places, k, to + c * places, ACTIVATED);
            else outputs(x + c * places, places, k, to + c * places, ALONE);
        }
    }
}

/* g becomes the gradient by x; scale and shift are of every row */
void tacit_group_norm_backward(const float *x, const float *weight, const float *bias, const float *mean,
                               const float *inverse, long rows, long channels, long places, long groups, int activated,
                               float *g, float *scale, float *shift, int threads) {
    const long size = channels / groups;
#pragma omp parallel for num_threads(threads) schedule(static) if (threads > 1)
    for (long group = 0; group < rows * groups; group++) {
        const double by_spread = (double)inverse[group], count = (double)(size * places);
        double of_g = 0.0, of_product = 0.0, sum, product;
        for (long c = group * size; c < (group + 1) * size; c++) {
            const Channel k = channel(mean[group], inverse[group], weight, bias, c % channels);
            const double scaled = weight ? (double)weight[c % channels] : 1.0;
            products(x + c * places, g + c * places, places, k, &sum, &product, activated);
            of_g += scaled * sum, of_product += scaled * product;
            scale[c] = (float)(product * by_spread), shift[c] = (float)sum;
        }
        const float tilt = (float)(-of_product * by_spread * by_spread * by_spread / count);
        const float rest = (float)(-of_g * by_spread / count);
        for (long c = group * size; c < (group + 1) * size; c++) {
            const Channel k = channel(mean[group], inverse[group], weight, bias, c % channels);
            if (activated) inputs(x + c * places, places, k, tilt, rest, g + c * places, ACTIVATED);
            else inputs(x + c * places, places, k, tilt, rest, g + c * places, ALONE);
        }
    }
}
