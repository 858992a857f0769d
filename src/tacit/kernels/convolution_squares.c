/* Squared norms of the gradients of a 2-d convolution, record by record, without forming them:

   |sum_t g_t x_t^T|^2 = sum over pairs of places (t, s) of (x_t . x_s) (g_t . g_s), and the product of two patches is a sum
   of products of pixels, the same for all pairs of patches that see them: there are far fewer pixels than numbers in
   patches. A product adds its channels in single precision, RUN of them one after the other, then the runs; a product of
   patches adds those of its pixels. All pairs are added up in double precision. */

#include <stdlib.h>
#include <string.h>

#ifdef __AVX512F__
#define LANES 16
#define OUTS 8
#elif defined(__AVX__)
#define LANES 8
#define OUTS 4
#else
#define LANES 4
#define OUTS 4
#endif
#define ACROSS 2
#define RUN 64
#define WIDE (ACROSS * LANES)

typedef float Vector __attribute__((vector_size(4 * LANES), aligned(4)));

typedef struct { /* as in convolution.c */
    long in, height, width, out, rows, columns;
    long kernel_height, kernel_width, stride_height, stride_width, pad_top, pad_left, padded_height, padded_width;
} Shape;

static long rounded_up(long count, long unit) { return (count + unit - 1) / unit * unit; }

/* Products of OUTS pixels and WIDE pixels over all channels */
static void product_tile(const float *left, const float *right, long channels, long stride, float *to) {
    for (long first = 0; first < channels; first += RUN) {
        long last = first + RUN < channels ? first + RUN : channels;
        Vector sum[OUTS][ACROSS] = {{{0}}};
        for (long c = first; c < last; c++) {
            Vector x[ACROSS];
            for (int v = 0; v < ACROSS; v++) x[v] = *(const Vector *)(right + c * stride + v * LANES);
            for (int o = 0; o < OUTS; o++)
                for (int v = 0; v < ACROSS; v++) sum[o][v] += left[c * stride + o] * x[v];
        }
        for (int o = 0; o < OUTS; o++)
            for (int v = 0; v < ACROSS; v++) {
                Vector *at = (Vector *)(to + o * stride + v * LANES);
                *at = first ? *at + sum[o][v] : sum[o][v];
            }
    }
}

/* Products of every pixel p and every q <= p, at [p][q]; pixels are [channels][places], their copy has whole tiles. */
static void products_of_pixels(const float *pixels, long channels, long places, float *copy, float *to) {
    const long stride = rounded_up(places, WIDE);
    for (long c = 0; c < channels; c++) {
        memcpy(copy + c * stride, pixels + c * places, sizeof(float) * (size_t)places);
        memset(copy + c * stride + places, 0, sizeof(float) * (size_t)(stride - places));
    }
    for (long p = 0; p < places; p += OUTS)
        for (long q = 0; q < places && q < p + OUTS; q += WIDE)
            product_tile(copy + p, copy + q, channels, stride, to + p * stride + q);
}

/* The products of the patch at (i, j) and all those before it and itself */
static void products_of_patch(const Shape *s, const float *pixels, long stride, long i, long j, float *restrict to) {
    memset(to, 0, sizeof(float) * (size_t)(i * s->columns + j + 1));
    for (long a = 0; a < s->kernel_height; a++)
        for (long b = 0; b < s->kernel_width; b++) {
            const long down = a - s->pad_top, right = b - s->pad_left;
            const long y = i * s->stride_height + down, x = j * s->stride_width + right;
            if (y < 0 || y >= s->height || x < 0 || x >= s->width) continue;
            long begin = right < 0 ? (s->stride_width - 1 - right) / s->stride_width : 0, end = s->columns;
            while (end > begin && (end - 1) * s->stride_width + right >= s->width) end--;
            for (long above = 0; above <= i; above++) {
                const long row = above * s->stride_height + down, last = above < i || end < j + 1 ? end : j + 1;
                if (row < 0) continue;
                const float *from = pixels + (y * s->width + x) * stride + row * s->width + right;
                float *restrict at = to + above * s->columns;
                if (s->stride_width == 1)
                    for (long k = begin; k < last; k++) at[k] += from[k];
                else
                    for (long k = begin; k < last; k++) at[k] += from[k * s->stride_width];
            }
        }
}

static double square_of_one(const Shape *s, const float *pixels, long stride, const float *gs, long g_stride, float *line) {
    double total = 0.0;
    for (long i = 0; i < s->rows; i++)
        for (long j = 0; j < s->columns; j++) {
            const long t = i * s->columns + j;
            double parts[LANES] = {0.0};
            long k = 0;
            products_of_patch(s, pixels, stride, i, j, line);
            for (; k + LANES <= t; k += LANES)
                for (int lane = 0; lane < LANES; lane++)
                    parts[lane] += (double)line[k + lane] * (double)gs[t * g_stride + k + lane];
            for (; k < t; k++) parts[0] += (double)line[k] * (double)gs[t * g_stride + k];
            for (int lane = 1; lane < LANES; lane++) parts[0] += parts[lane];
            total += 2.0 * parts[0] + (double)line[t] * (double)gs[t * g_stride + t];
        }
    return total;
}

/* 0, or 1 where memory is short */
int tacit_convolution_squares(const float *images, const float *gs, long records, const long *shape, double *squares,
                              int threads) {
    Shape s;
    memcpy(&s, shape, sizeof s);
    const long pixels = s.height * s.width, places = s.rows * s.columns;
    const long stride = rounded_up(pixels, WIDE), g_stride = rounded_up(places, WIDE);
    const long copied = s.in * stride > s.out * g_stride ? s.in * stride : s.out * g_stride;
    long failed = 0;
#pragma omp parallel num_threads(threads) if (threads > 1)
    {
        float *copy = aligned_alloc(64, sizeof(float) * (size_t)(copied + stride * stride + g_stride * g_stride + g_stride));
        float *of_pixels = copy + copied, *of_places = of_pixels + stride * stride, *line = of_places + g_stride * g_stride;
#pragma omp for schedule(static)
        for (long r = 0; r < records; r++) {
            if (copy == NULL) {
                failed = 1;
                continue;
            }
            products_of_pixels(images + r * s.in * pixels, s.in, pixels, copy, of_pixels);
            products_of_pixels(gs + r * s.out * places, s.out, places, copy, of_places);
            squares[r] = square_of_one(&s, of_pixels, stride, of_places, g_stride, line);
        }
        free(copy);
    }
    return (int)failed;
}
