/* Max pooling of planes, value and place as PyTorch finds them: the first of equal maxima in reading order, the last NaN,
   and the first place of a window that holds nothing above -inf.

   Neighbouring windows are the lanes of a vector. A plane is copied between edges of -inf, so that all its windows are
   whole and those beyond the last may be looked at; what they give is written over by the next row. */

#include <math.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#ifdef __AVX512F__
#define LANES 16
#define NUMBERS {0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15}
#elif defined(__AVX__)
#define LANES 8
#define NUMBERS {0, 1, 2, 3, 4, 5, 6, 7}
#else
#define LANES 4
#define NUMBERS {0, 1, 2, 3}
#endif
#define INLINE static inline __attribute__((always_inline))

typedef float Vector __attribute__((vector_size(4 * LANES), aligned(4)));
typedef int32_t Places __attribute__((vector_size(4 * LANES), aligned(4)));

typedef struct {
    long height, width, rows, columns; /* of the plane and of its output */
    long kernel_height, kernel_width, stride_height, stride_width, pad_top, pad_left, padded_height, padded_width;
} Shape;

static const Places LANE = NUMBERS;

INLINE Vector load(const float *from, const long stride) {
    if (stride == 1) return *(const Vector *)from;
    if (stride == 2) return __builtin_shuffle(*(const Vector *)from, *(const Vector *)(from + LANES), 2 * LANE);
    Vector x;
    for (int lane = 0; lane < LANES; lane++) x[lane] = from[lane * stride];
    return x;
}

/* LANES windows side by side: the first begins at `from` in the padded plane, at `top`, `left` in the plane itself. */
INLINE void windows(const Shape *s, const float *from, long top, long left, float *values, int32_t *places,
                    const long height, const long across, const long stride) {
    Places begin = LANE * (int32_t)stride + (int32_t)left, inside = begin & (begin > 0);
    Places at = inside + (int32_t)((top > 0 ? top : 0) * s->width); /* the first place that is no edge */
    Vector most = (Vector){0} - INFINITY;
    for (long h = 0; h < height; h++)
        for (long w = 0; w < across; w++) {
            Vector x = load(from + h * s->padded_width + w, stride);
            Places here = begin + (int32_t)((top + h) * s->width + w), take = (x > most) | (x != x);
            most = (Vector)(((Places)x & take) | ((Places)most & ~take));
            at = (here & take) | (at & ~take);
        }
    *(Vector *)values = most, *(Places *)places = at;
}

INLINE void pool_by(const Shape *s, const float *padded, float *values, int32_t *places, const long height,
                    const long across, const long stride) {
    for (long i = 0; i < s->rows; i++, values += s->columns, places += s->columns)
        for (long j = 0; j < s->columns; j += LANES) {
            long top = i * s->stride_height, left = j * stride;
            const float *from = padded + top * s->padded_width + left;
            windows(s, from, top - s->pad_top, left - s->pad_left, values + j, places + j, height, across, stride);
        }
}

/* What the compiler knows it can unroll. */
static void pool(const Shape *s, const float *padded, float *values, int32_t *places) {
    long height = s->kernel_height, across = s->kernel_width, stride = s->stride_width;
    long square = height == across ? height : 0;
    if (square == 2 && stride == 1) pool_by(s, padded, values, places, 2, 2, 1);
    else if (square == 2 && stride == 2) pool_by(s, padded, values, places, 2, 2, 2);
    else if (square == 3 && stride == 2) pool_by(s, padded, values, places, 3, 3, 2);
    else if (stride == 1) pool_by(s, padded, values, places, height, across, 1);
    else if (stride == 2) pool_by(s, padded, values, places, height, across, 2);
    else pool_by(s, padded, values, places, height, across, stride);
}

/* Planes of fewer than 2^31 entries; every window must reach into its plane. 0, or 1 where memory is short */
int tacit_max_pool(const float *images, long planes, const long *shape, float *values, int64_t *places, int threads) {
    Shape s;
    memcpy(&s, shape, sizeof s);
    long size = s.height * s.width, outs = s.rows * s.columns, failed = 0;
    long beyond = LANES * (s.stride_width > 2 ? s.stride_width : 2); /* how far the last lane may look */
    long room = s.padded_height * s.padded_width + beyond, room_outs = outs + LANES;
#pragma omp parallel num_threads(threads) if (threads > 1)
    {
        float *padded = malloc(sizeof(float) * (size_t)(room + 2 * room_outs));
        float *most = padded + room;
        int32_t *at = (int32_t *)(most + room_outs);
        for (long k = 0; padded != NULL && k < room; k++) padded[k] = -INFINITY;
#pragma omp for schedule(static)
        for (long plane = 0; plane < planes; plane++) {
            if (padded == NULL) {
                failed = 1;
                continue;
            }
            const float *from = images + plane * size;
            float *inner = padded + s.pad_top * s.padded_width + s.pad_left;
            if (s.width == s.padded_width) memcpy(inner, from, sizeof(float) * (size_t)size);
            else
                for (long h = 0; h < s.height; h++)
                    memcpy(inner + h * s.padded_width, from + h * s.width, sizeof(float) * (size_t)s.width);
            pool(&s, padded, most, at);
            memcpy(values + plane * outs, most, sizeof(float) * (size_t)outs);
            for (long k = 0; k < outs; k++) places[plane * outs + k] = at[k];
        }
        free(padded);
    }
    return (int)failed;
}

/* What came to each window goes to the place of its maximum, window after window, as with PyTorch. */
void tacit_max_pool_backward(const float *g, const int64_t *places, long planes, long outs, long size, float *to, int threads) {
#pragma omp parallel for num_threads(threads) schedule(static) if (threads > 1)
    for (long plane = 0; plane < planes; plane++) {
        float *restrict into = to + plane * size;
        memset(into, 0, sizeof(float) * (size_t)size);
        for (long k = plane * outs; k < (plane + 1) * outs; k++) into[places[k]] += g[k];
    }
}
