/* Gradients of a 2-d convolution, without a matrix of patches: of every record, with its squared norm, or their clipped
   sum, for which none of them is kept.

   In an image whose channels come last, the part of a patch that lies in one row is a run of neighbours: kernel width
   times channels. So gradient[o, ki, :] = sum over places (i, j) of g[o, i, j] * image[i * stride + ki, j * stride ...],
   a product of matrices that reads the image where it is. Gradients come as [out, kernel height, kernel width, in]. */

#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#ifdef __AVX512F__
#define LANES 16
#define OUTS 8 /* rows of the tile that is kept in registers, and vectors in a row: 24 of 32 registers */
#elif defined(__AVX__)
#define LANES 8
#define OUTS 4
#else
#define LANES 4
#define OUTS 4
#endif
#define NARROW (LANES > 4 ? LANES / 2 : LANES)
#define INLINE static inline __attribute__((always_inline))

typedef float Vector __attribute__((vector_size(4 * LANES), aligned(4)));
typedef float Half __attribute__((vector_size(4 * NARROW), aligned(4))); /* for narrow runs: two of them take as long as one */
typedef float Four __attribute__((vector_size(16), aligned(4)));
typedef int32_t Order __attribute__((vector_size(16)));

typedef struct {
    long in, height, width, out, rows, columns; /* of the image and of the output */
    long kernel_height, kernel_width, stride_height, stride_width, pad_top, pad_left, padded_height, padded_width;
} Shape;

/* Four pixels of four planes as four channels of four pixels */
INLINE void turn_four(const float *planes, long size, float *to, long in) {
    const Order low = {0, 4, 1, 5}, high = {2, 6, 3, 7}, left = {0, 1, 4, 5}, right = {2, 3, 6, 7};
    const Four a = *(const Four *)planes, b = *(const Four *)(planes + size);
    const Four c = *(const Four *)(planes + 2 * size), d = *(const Four *)(planes + 3 * size);
    const Four ab = __builtin_shuffle(a, b, low), cd = __builtin_shuffle(c, d, low);
    const Four more_ab = __builtin_shuffle(a, b, high), more_cd = __builtin_shuffle(c, d, high);
    *(Four *)to = __builtin_shuffle(ab, cd, left), *(Four *)(to + in) = __builtin_shuffle(ab, cd, right);
    *(Four *)(to + 2 * in) = __builtin_shuffle(more_ab, more_cd, left);
    *(Four *)(to + 3 * in) = __builtin_shuffle(more_ab, more_cd, right);
}

/* Channels last. The zeros around are there already. */
static void turn_image(const Shape *s, const float *restrict image, float *restrict turned) {
    const long size = s->height * s->width;
    for (long h = 0; h < s->height; h++) {
        float *row = turned + ((h + s->pad_top) * s->padded_width + s->pad_left) * s->in;
        for (long first = 0; first < s->in; first += 8) { /* so few planes that their lines stay in the first-level cache */
            const long last = first + 8 < s->in ? first + 8 : s->in;
            const float *from = image + h * s->width;
            for (long w = 0, step; w < s->width; w += step) {
                long c = first;
                step = w + 4 <= s->width ? 4 : 1;
                for (; step == 4 && c + 4 <= last; c += 4) turn_four(from + c * size + w, size, row + w * s->in + c, s->in);
                for (; c < last; c++)
                    for (long k = w; k < w + step; k++) row[k * s->in + c] = from[c * size + k];
            }
        }
    }
}

/* Where the gradients of OUTS outputs lie; beyond the last one it is taken again */
INLINE void find_outputs(const Shape *s, const float *gs, long first, const float **rows) {
    for (long o = 0; o < OUTS; o++) rows[o] = gs + (first + o < s->out ? first + o : s->out - 1) * s->rows * s->columns;
}

/* Where the vectors of a tile are read and written: as many entries of the last as `last` says */
typedef struct {
    long apart, to_row, to_apart, outs, entries, last;
} Places;

/* A tile of OUTS outputs by `vectors` vectors, summed over all places. */
#define TILE(NAME, TYPE)                                                                                       \
    INLINE void NAME(const Shape *s, const float *image, const float *const *rows, const Places p, float *to,  \
                     const int vectors) {                                                                      \
        const long lanes = sizeof(TYPE) / sizeof(float);                                                       \
        const long down = s->stride_height * s->padded_width * s->in, right = s->stride_width * s->in;         \
        const float *g[OUTS];                                                                                  \
        TYPE sum[OUTS][3] = {{{0}}};                                                                           \
        for (int o = 0; o < OUTS; o++) g[o] = rows[o];                                                         \
        for (long i = 0, l = 0; i < s->rows; i++) {                                                            \
            const float *at = image + i * down;                                                                \
            for (const long end = l + s->columns; l < end; l++, at += right) {                                 \
                TYPE x[3];                                                                                     \
                for (int v = 0; v < vectors; v++) x[v] = *(const TYPE *)(at + v * p.apart);                    \
                for (int o = 0; o < OUTS; o++)                                                                 \
                    for (int v = 0; v < vectors; v++) sum[o][v] += g[o][l] * x[v];                             \
            }                                                                                                  \
        }                                                                                                      \
        for (int o = 0; o < OUTS; o++)                                                                         \
            for (int v = 0; v < vectors; v++) {                                                                \
                float *into = to + o * p.to_row + v * p.to_apart;                                              \
                const long count = v < vectors - 1 ? p.entries : p.last;                                       \
                if (o >= p.outs) continue;                                                                     \
                if (count == lanes) *(TYPE *)into = sum[o][v];                                                 \
                else memcpy(into, &sum[o][v], sizeof(float) * (size_t)count);                                  \
            }                                                                                                  \
    }

TILE(tile, Vector)
TILE(narrow_tile, Half)

/* How many vectors of so many a tile takes: four are two and two, and none is left alone */
INLINE long at_once(long vectors) { return vectors == 4 ? 2 : vectors > 3 ? 3 : vectors; }

/* Runs that fill no more than a vector: those of several rows of the kernel together */
static void narrow_gradient(const Shape *s, const float *image, const float *const *g, float *to, long outs) {
    const long run = s->kernel_width * s->in, apart = s->padded_width * s->in;
    const Places p = {apart, s->kernel_height * run, run, outs, run, run};
    for (long k = 0, rows; k < s->kernel_height; k += rows, to += rows * run) {
        const float *from = image + k * apart;
        rows = at_once(s->kernel_height - k);
        if (2 * run > LANES) {
            if (rows == 3) tile(s, from, g, p, to, 3);
            else if (rows == 2) tile(s, from, g, p, to, 2);
            else tile(s, from, g, p, to, 1);
        } else if (rows == 3) narrow_tile(s, from, g, p, to, 3);
        else if (rows == 2) narrow_tile(s, from, g, p, to, 2);
        else narrow_tile(s, from, g, p, to, 1);
    }
}

static void gradient_of_one(const Shape *s, const float *image, const float *gs, float *to) {
    const long run = s->kernel_width * s->in, to_row = s->kernel_height * run;
    for (long o = 0; o < s->out; o += OUTS, to += OUTS * to_row) {
        const long outs = o + OUTS < s->out ? OUTS : s->out - o;
        const float *g[OUTS];
        find_outputs(s, gs, o, g);
        if (run <= LANES) narrow_gradient(s, image, g, to, outs);
        else
            for (long k = 0; k < s->kernel_height; k++)
                for (long d = 0, entries; d < run; d += entries) {
                    const float *from = image + k * s->padded_width * s->in + d;
                    const long left = run - d, vectors = at_once((left + LANES - 1) / LANES);
                    entries = left < vectors * LANES ? left : vectors * LANES;
                    const Places p = {LANES, to_row, LANES, outs, LANES, entries - (vectors - 1) * LANES};
                    if (vectors == 3) tile(s, from, g, p, to + k * run + d, 3);
                    else tile(s, from, g, p, to + k * run + d, 2);
                }
    }
}

/* Numbers of a turned image: the last run is read beyond its end */
static size_t room_of(const Shape *s) {
    return (size_t)((s->padded_height * s->padded_width * s->in + 4 * LANES - 1) / LANES * LANES);
}

static float *zeros(size_t count) {
    float *found = aligned_alloc(64, (sizeof(float) * count + 63) / 64 * 64);
    if (found != NULL) memset(found, 0, sizeof(float) * count);
    return found;
}

double tacit_square_sum(const float *row, long count); /* rows.c: in double precision throughout */

/* 0, or 1 where memory is short */
int tacit_convolution(const float *images, const float *gs, long records, const long *shape, float *gradients,
                      double *squares, int threads) {
    Shape s;
    memcpy(&s, shape, sizeof s);
    long size = s.out * s.kernel_height * s.kernel_width * s.in, places = s.rows * s.columns, failed = 0;
#pragma omp parallel num_threads(threads) if (threads > 1)
    {
        float *image = zeros(room_of(&s));
#pragma omp for schedule(static)
        for (long r = 0; r < records; r++) {
            if (image == NULL) {
                failed = 1;
                continue;
            }
            turn_image(&s, images + r * s.in * s.height * s.width, image);
            gradient_of_one(&s, image, gs + r * s.out * places, gradients + r * size);
            squares[r] = tacit_square_sum(gradients + r * size, size);
        }
        free(image);
    }
    return (int)failed;
}

/* ---- the clipped sum ----

   A tile of one record's gradient is finished in registers, in single precision, and then added times its factor. */

#define CHUNK (1L << 18) /* numbers of images and gradients that stay in the second-level cache while all tiles read them */

typedef struct {
    const Shape *shape;
    const float *turned, *gs; /* of every record of a chunk */
    size_t room;
    const double *factors;
    long records;
    int first; /* nothing is there yet to add to */
} Chunk;

#define ADD_RECORDS(NAME, TOTAL)                                                                               \
    INLINE void NAME##_in_tile(const Chunk *c, long o, long k, long d, long entries, TOTAL *to, const int vectors) { \
        const Shape *s = c->shape;                                                                             \
        const long to_row = s->kernel_height * s->kernel_width * s->in;                                        \
        const long outs = o + OUTS < s->out ? OUTS : s->out - o;                                               \
        const Places p = {LANES, 3 * LANES, LANES, OUTS, LANES, LANES};                                        \
        TOTAL total[OUTS][3 * LANES] = {{0}};                                                                  \
        if (!c->first)                                                                                         \
            for (long a = 0; a < outs; a++) memcpy(total[a], to + a * to_row, sizeof(TOTAL) * (size_t)entries); \
        for (long r = 0; r < c->records; r++) {                                                                \
            const float *image = c->turned + (size_t)r * c->room + k * s->padded_width * s->in + d, *g[OUTS];  \
            const TOTAL factor = (TOTAL)c->factors[r];                                                         \
            float sum[OUTS][3 * LANES];                                                                        \
            if (c->factors[r] == 0.0) continue;                                                                \
            find_outputs(s, c->gs + r * s->out * s->rows * s->columns, o, g);                                  \
            tile(s, image, g, p, sum[0], vectors);                                                             \
            for (int a = 0; a < OUTS; a++)                                                                     \
                for (int e = 0; e < vectors * LANES; e++) total[a][e] += factor * (TOTAL)sum[a][e];            \
        }                                                                                                      \
        for (long a = 0; a < outs; a++) memcpy(to + a * to_row, total[a], sizeof(TOTAL) * (size_t)entries);    \
    }                                                                                                          \
    static void NAME(const Chunk *c, long o, long k, TOTAL *to) {                                              \
        const long run = c->shape->kernel_width * c->shape->in, to_row = c->shape->kernel_height * run;        \
        for (long d = 0; d < run; d += 3 * LANES) {                                                            \
            const long left = run - d, entries = left < 3 * LANES ? left : 3 * LANES;                          \
            TOTAL *into = to + o * to_row + k * run + d;                                                       \
            if (left > 2 * LANES) NAME##_in_tile(c, o, k, d, entries, into, 3);                                \
            else if (left > LANES) NAME##_in_tile(c, o, k, d, entries, into, 2);                               \
            else NAME##_in_tile(c, o, k, d, entries, into, 1);                                                 \
        }                                                                                                      \
    }

ADD_RECORDS(add_in_doubles, double)
ADD_RECORDS(add_in_floats, float)

/* to [out, kernel height, kernel width, in], in floats if `single`; 0, or 1 where memory is short. Records of factor 0 are
   not looked at. A tile is computed by one thread, record after record: the number of threads changes no bit. */
int tacit_convolution_sum(const float *images, const float *gs, const double *factors, long records, const long *shape,
                          int single, void *to, int threads) {
    Shape s;
    memcpy(&s, shape, sizeof s);
    const long places = s.rows * s.columns, blocks = (s.out + OUTS - 1) / OUTS;
    const size_t room = room_of(&s);
    const long fit = CHUNK / ((long)room + s.out * places), most = fit < 1 ? 1 : fit < records ? fit : records;
    float *turned = zeros(room * (size_t)most);
    if (turned == NULL) return 1;
#pragma omp parallel num_threads(threads) if (threads > 1)
    for (long start = 0; start < records; start += most) {
        const long count = start + most < records ? most : records - start;
        const Chunk chunk = {&s, turned, gs + start * s.out * places, room, factors + start, count, start == 0};
#pragma omp for schedule(static)
        for (long r = 0; r < count; r++)
            if (factors[start + r] != 0.0)
                turn_image(&s, images + (start + r) * s.in * s.height * s.width, turned + (size_t)r * room);
#pragma omp for schedule(dynamic) collapse(2)
        for (long o = 0; o < blocks; o++)
            for (long k = 0; k < s.kernel_height; k++) {
                if (single) add_in_floats(&chunk, o * OUTS, k, to);
                else add_in_doubles(&chunk, o * OUTS, k, to);
            }
    }
    free(turned);
    return 0;
}
