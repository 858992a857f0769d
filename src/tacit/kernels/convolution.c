/* Gradients of a 2-d convolution, without a matrix of patches: of every record, with its squared norm, or their clipped
   sum, for which none of them is kept.

   In an image whose channels come last, the part of a patch that lies in one row is a run of neighbours: kernel width
   times channels. So gradient[o, ki, :] = sum over places (i, j) of g[o, i, j] * image[i * stride + ki, j * stride ...],
   a product of matrices that reads the image where it is. Gradients come as [out, kernel height, kernel width, in]. */

#include <stdlib.h>
#include <string.h>

#ifdef __AVX512F__
#define LANES 16
#define OUTS 8 /* rows of the tile that is kept in registers, and vectors in a row: 24 of 32 registers */
#else
#define LANES 8
#define OUTS 4
#endif
#define INLINE static inline __attribute__((always_inline))

typedef float Vector __attribute__((vector_size(4 * LANES), aligned(4)));
typedef float Half __attribute__((vector_size(2 * LANES), aligned(4))); /* for narrow runs: two of them take as long as one */

typedef struct {
    long in, height, width, out, rows, columns; /* of the image and of the output */
    long kernel_height, kernel_width, stride_height, stride_width, pad_top, pad_left, padded_height, padded_width;
} Shape;

/* Channels last, with zeros around. */
static void turn_image(const Shape *s, const float *restrict image, float *restrict turned) {
    memset(turned, 0, sizeof(float) * (size_t)(s->padded_height * s->padded_width * s->in));
    for (long h = 0; h < s->height; h++) {
        float *row = turned + ((h + s->pad_top) * s->padded_width + s->pad_left) * s->in;
        for (long first = 0; first < s->in; first += 16) {
            long last = first + 16 < s->in ? first + 16 : s->in;
            for (long w = 0; w < s->width; w++)
                for (long c = first; c < last; c++) row[w * s->in + c] = image[(c * s->height + h) * s->width + w];
        }
    }
}

/* [blocks of OUTS][places][OUTS], zeros behind the last output */
static void turn_gradient(const Shape *s, const float *restrict g, float *restrict turned) {
    long places = s->rows * s->columns;
    for (long first = 0; first < s->out; first += OUTS, turned += places * OUTS)
        for (long o = 0; o < OUTS; o++)
            for (long l = 0; l < places; l++) turned[l * OUTS + o] = first + o < s->out ? g[(first + o) * places + l] : 0.0f;
}

/* A tile of OUTS outputs by `vectors` vectors, summed over all places. */
#define TILE(NAME, TYPE)                                                                                       \
    INLINE void NAME(const Shape *s, const float *image, const float *g, float *to, long outs, long to_row,    \
                     long entries, const int vectors) {                                                        \
        const long lanes = sizeof(TYPE) / sizeof(float);                                                       \
        const long down = s->stride_height * s->padded_width * s->in, right = s->stride_width * s->in;         \
        TYPE sum[OUTS][3] = {{{0}}};                                                                           \
        for (long i = 0; i < s->rows; i++) {                                                                   \
            const float *at = image + i * down;                                                                \
            for (long j = 0; j < s->columns; j++, at += right, g += OUTS) {                                    \
                TYPE x[3];                                                                                     \
                for (int v = 0; v < vectors; v++) x[v] = *(const TYPE *)(at + v * lanes);                      \
                for (int o = 0; o < OUTS; o++)                                                                 \
                    for (int v = 0; v < vectors; v++) sum[o][v] += g[o] * x[v];                                \
            }                                                                                                  \
        }                                                                                                      \
        if (entries == vectors * lanes && outs == OUTS)                                                        \
            for (int o = 0; o < OUTS; o++)                                                                     \
                for (int v = 0; v < vectors; v++) *(TYPE *)(to + o * to_row + v * lanes) = sum[o][v];          \
        else                                                                                                   \
            for (long o = 0; o < outs; o++) memcpy(to + o * to_row, sum[o], sizeof(float) * (size_t)entries);  \
    }

TILE(tile, Vector)
TILE(narrow_tile, Half)

static void gradient_of_one(const Shape *s, const float *image, const float *g, float *to) {
    long run = s->kernel_width * s->in, to_row = s->kernel_height * run;
    for (long o = 0; o < s->out; o += OUTS, g += s->rows * s->columns * OUTS) {
        long outs = o + OUTS < s->out ? OUTS : s->out - o;
        for (long k = 0; k < s->kernel_height; k++)
            for (long d = 0, entries; d < run; d += entries) {
                const float *from = image + k * s->padded_width * s->in + d;
                float *into = to + o * to_row + k * run + d;
                long left = run - d, vectors = (left + LANES - 1) / LANES;
                vectors = vectors == 4 ? 2 : vectors > 3 ? 3 : vectors; /* four are two and two */
                entries = left < vectors * LANES ? left : vectors * LANES;
                if (vectors == 3) tile(s, from, g, into, outs, to_row, entries, 3);
                else if (vectors == 2) tile(s, from, g, into, outs, to_row, entries, 2);
                else if (2 * left > LANES) tile(s, from, g, into, outs, to_row, entries, 1);
                else narrow_tile(s, from, g, into, outs, to_row, entries, 1);
            }
    }
}

double tacit_square_sum(const float *row, long count); /* rows.c: in double precision throughout */

/* 0, or 1 where memory is short */
int tacit_convolution(const float *images, const float *gs, long records, const long *shape, float *gradients,
                      double *squares, int threads) {
    Shape s;
    memcpy(&s, shape, sizeof s);
    long size = s.out * s.kernel_height * s.kernel_width * s.in, places = s.rows * s.columns, failed = 0;
    size_t room = (size_t)(s.padded_height * s.padded_width * s.in + 3 * LANES); /* the last run is read beyond its end */
    size_t room_g = (size_t)((s.out + OUTS - 1) / OUTS * OUTS * places);
#pragma omp parallel num_threads(threads) if (threads > 1)
    {
        float *image = malloc(sizeof(float) * (room + room_g));
        if (image != NULL) memset(image + room - 3 * LANES, 0, sizeof(float) * 3 * LANES);
#pragma omp for schedule(static)
        for (long r = 0; r < records; r++) {
            if (image == NULL) {
                failed = 1;
                continue;
            }
            turn_image(&s, images + r * s.in * s.height * s.width, image);
            turn_gradient(&s, gs + r * s.out * places, image + room);
            gradient_of_one(&s, image, image + room, gradients + r * size);
            squares[r] = tacit_square_sum(gradients + r * size, size);
        }
        free(image);
    }
    return (int)failed;
}

/* ---- the clipped sum ----

   A tile of one record's gradient is finished in registers, in single precision, and then added times its factor. */

#define CHUNK (1L << 18) /* numbers of turned images that stay in the second-level cache while all tiles read them */

typedef struct {
    const Shape *shape;
    const float *turned; /* image and gradient of every record of a chunk */
    size_t room, each;
    const double *factors;
    long records;
    int first; /* nothing is there yet to add to */
} Chunk;

#define ADD_RECORDS(NAME, TOTAL)                                                                               \
    INLINE void NAME##_in_tile(const Chunk *c, long o, long k, long d, long entries, TOTAL *to, const int vectors) { \
        const Shape *s = c->shape;                                                                             \
        const long to_row = s->kernel_height * s->kernel_width * s->in;                                        \
        const long outs = o + OUTS < s->out ? OUTS : s->out - o;                                               \
        TOTAL total[OUTS][3 * LANES] = {{0}};                                                                  \
        if (!c->first)                                                                                         \
            for (long a = 0; a < outs; a++) memcpy(total[a], to + a * to_row, sizeof(TOTAL) * (size_t)entries); \
        for (long r = 0; r < c->records; r++) {                                                                \
            const float *image = c->turned + (size_t)r * c->each + k * s->padded_width * s->in + d;            \
            const float *g = c->turned + (size_t)r * c->each + c->room + o * s->rows * s->columns;             \
            const TOTAL factor = (TOTAL)c->factors[r];                                                         \
            float sum[OUTS][3 * LANES];                                                                        \
            if (c->factors[r] == 0.0) continue;                                                                \
            tile(s, image, g, sum[0], OUTS, 3 * LANES, vectors * LANES, vectors);                              \
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

/* The records of a chunk that count, as tiles read them */
static void turn_record(const Shape *s, const float *image, const float *g, float *turned, size_t room) {
    memset(turned + room - 4 * LANES, 0, sizeof(float) * 4 * LANES); /* the last run is read beyond its end */
    turn_image(s, image, turned);
    turn_gradient(s, g, turned + room);
}

/* to [out, kernel height, kernel width, in], in floats if `single`; 0, or 1 where memory is short. Records of factor 0 are
   not looked at. A tile is computed by one thread, record after record: the number of threads changes no bit. */
int tacit_convolution_sum(const float *images, const float *gs, const double *factors, long records, const long *shape,
                          int single, void *to, int threads) {
    Shape s;
    memcpy(&s, shape, sizeof s);
    const long places = s.rows * s.columns, blocks = (s.out + OUTS - 1) / OUTS;
    const size_t room = (size_t)((s.padded_height * s.padded_width * s.in + 4 * LANES - 1) / LANES * LANES);
    const size_t each = (room + (size_t)(blocks * OUTS * places) + LANES - 1) / LANES * LANES;
    const long fit = CHUNK / (long)each, most = fit < 1 ? 1 : fit < records ? fit : records;
    float *turned = aligned_alloc(64, sizeof(float) * each * (size_t)most);
    if (turned == NULL) return 1;
#pragma omp parallel num_threads(threads) if (threads > 1)
    for (long start = 0; start < records; start += most) {
        const long count = start + most < records ? most : records - start;
        const Chunk chunk = {&s, turned, room, each, factors + start, count, start == 0};
#pragma omp for schedule(static)
        for (long r = 0; r < count; r++)
            if (factors[start + r] != 0.0)
                turn_record(&s, images + (start + r) * s.in * s.height * s.width, gs + (start + r) * s.out * places,
                            turned + (size_t)r * each, room);
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
