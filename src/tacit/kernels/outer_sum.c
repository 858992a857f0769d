/* The clipped sum of a linear map's gradients: [out, in] = sum over records of factor * (sum over positions of g^T x).

   Sums across records are in double precision, so that no record changes the rounding of the others by more than 2^-53.
   Records of few positions are summed in double precision altogether: a product of two floats is exact there. Records of
   many add up their own positions in single precision, in stretches that start anew, and each stretch goes into the
   double sum. The caller may allow stretches of several records of one position, in a sample so small that this rounding
   cannot exceed the slack; it takes half the time. There the sum may be rounded to floats at its end, and where all
   records may be one stretch, it is of floats altogether.

   All are products of matrices: a tile of OUTS by VECTORS vectors stays in registers while a stretch of lines (a line is
   one position of one record) goes by, from copies ("panels") that lie in memory in the order in which they are read. Its
   sum is then added to that of the stretches before, which lies in the first-level cache. A tile is computed by one
   thread, line after line: the number of threads changes no bit. */

#include <stdlib.h>
#include <string.h>
#ifdef __AVX512F__
#include <immintrin.h>
#endif

#define INLINE static inline __attribute__((always_inline))

static long least(long a, long b) { return a < b ? a : b; }
static long greatest(long a, long b) { return a > b ? a : b; }

#ifdef __AVX512F__
#define BYTES 64
#define OUTS 12 /* 24 of 32 registers hold the tile */
#define FEW 4   /* floats that are turned into doubles together; OUTS are so many times as much */
#else
#ifdef __AVX__
#define BYTES 32
#else
#define BYTES 16 /* compilers keep longer vectors in memory there */
#endif
#define OUTS 6 /* 12 of 16 */
#define FEW 2
#endif
#define VECTORS 2

#define DEPTH 256       /* lines of one go, of which a tile's panel of x nearly fits into the first-level cache ... */
#define MOST 4096       /* ... or more where few columns leave room, as threads wait for each other at the end of one */
#define ROOM (1L << 20) /* bytes of x that are copied together: they stay in the second-level cache */
#define BLOCK 4         /* panels of g that are copied together */
#define AHEAD 8         /* lines that are fetched before they are copied */
#define PIECES 4        /* pieces of work for each thread, at least */
#define FEW_POSITIONS 8 /* up to here the double sum of a record costs less than adding it to the others would */

typedef double Doubles __attribute__((vector_size(BYTES), aligned(8)));
typedef float Floats __attribute__((vector_size(BYTES), aligned(4)));
typedef double FewDoubles __attribute__((vector_size(FEW * 8), aligned(8)));
typedef float FewFloats __attribute__((vector_size(FEW * 4), aligned(4)));

typedef struct { /* lines that are added up in single precision, and what their sum counts for */
    long length;
    double factor;
} Stretch;

typedef struct { /* the lines that are added in one go */
    long depth, count; /* lines, stretches */
    int scaled;        /* factors are in the copies of g, not in the stretches */
    long lines[MOST];  /* where they are in x and g */
    double factors[MOST];
    Stretch stretches[MOST];
} Go;

typedef struct { /* what is summed */
    const float *x, *g;
    long in, out;
    long from, ins; /* the columns of x that are copied */
    void *to;       /* doubles, or floats */
    int first;      /* nothing is there yet to add to */
    int threads;
} Sum;

/* ---- copies in the order in which they are read ---- */

/* Lines `start` to `stop` of some columns into panels [depth][width] of them, zeros behind the last; times factors where
   wanted. Each begins on another page of memory: what is needed next is asked for by hand. */
#define COPY(NAME, TYPE, FEW_OF_TYPE)                                                                              \
    INLINE void NAME(const Go *go, const float *from, long stride, long columns, const long width,                 \
                     const int scaled, long start, long stop, TYPE *restrict to) {                                 \
        for (long k = start; k < stop; k++) {                                                                      \
            const float *ahead = from + go->lines[least(k + AHEAD, go->depth - 1)] * stride;                       \
            for (long c = 0; c < columns; c += width) {                                                            \
                TYPE *restrict panel = to + c * go->depth + k * width;                                             \
                for (long o = 0; o < width; o += 16) __builtin_prefetch(ahead + c + o);                            \
                const float *line = from + go->lines[k] * stride + c;                                              \
                float filled_up[VECTORS * BYTES / 4] = {0};                                                        \
                if (columns - c < width) line = memcpy(filled_up, line, sizeof(float) * (size_t)(columns - c));    \
                if (!scaled && sizeof(TYPE) == sizeof(float)) memcpy(panel, line, sizeof(float) * (size_t)width);  \
                else                                                                                               \
                    for (long o = 0; o < width; o += FEW) {                                                        \
                        FewDoubles few = __builtin_convertvector(*(const FewFloats *)(line + o), FewDoubles);      \
                        if (scaled) few *= go->factors[k];                                                         \
                        *(FEW_OF_TYPE *)(panel + o) = __builtin_convertvector(few, FEW_OF_TYPE);                   \
                    }                                                                                              \
            }                                                                                                      \
        }                                                                                                          \
    }

COPY(copy_doubles, double, FewDoubles)
COPY(copy_floats, float, FewFloats)

/* ---- a tile ---- */

#define TILE(NAME, TYPE, VECTOR)                                                                                   \
    INLINE void NAME(const TYPE *x, const TYPE *g, long depth, VECTOR (*sum)[VECTORS], const int outs) {           \
        const long lanes = sizeof(VECTOR) / sizeof(TYPE);                                                          \
        VECTOR part[OUTS][VECTORS] = {{{0}}};                                                                      \
        for (long k = 0; k < depth; k++, x += VECTORS * lanes, g += OUTS) {                                        \
            VECTOR line[VECTORS];                                                                                  \
            for (int v = 0; v < VECTORS; v++) line[v] = *(const VECTOR *)(x + v * lanes);                          \
            for (int o = 0; o < outs; o++)                                                                         \
                for (int v = 0; v < VECTORS; v++) part[o][v] += g[o] * line[v];                                    \
        }                                                                                                          \
        for (int o = 0; o < outs; o++)                                                                             \
            for (int v = 0; v < VECTORS; v++) sum[o][v] = part[o][v];                                              \
    }

TILE(tile_of_doubles, double, Doubles)
TILE(tile_of_floats, float, Floats)

#define DOUBLES (VECTORS * BYTES / 8) /* columns of a tile */
#define FLOATS (VECTORS * BYTES / 4)

/* What a stretch adds to the sum. */
#define ADD_UP(NAME, TYPE, TOTAL, STEP, ADD)                                                                       \
    INLINE void NAME(TOTAL *restrict total, const TOTAL factor, const TYPE *restrict sum, const int count) {       \
        for (int c = 0; c < count; c += STEP) ADD;                                                                 \
    }

ADD_UP(add_doubles, double, double, 1, total[c] += factor * sum[c])
ADD_UP(add_floats, float, float, 1, total[c] += factor * sum[c])
#ifdef __AVX512F__ /* from memory to doubles in one instruction */
ADD_UP(add_widened, float, double, FLOATS,
       for (int lane = c; lane < c + FLOATS; lane += 8)
           *(Doubles *)(total + lane) += factor * (Doubles)_mm512_cvtps_pd(_mm256_loadu_ps(sum + lane)))
#else
ADD_UP(add_widened, float, double, 1, total[c] += factor * (double)sum[c])
#endif

/* A tile of the result: all stretches are added to it, and then it goes to where it belongs, which is fetched in the
   meantime. `outs` is what the compiler unrolls, `rows` what there is. */
#define PUT(RESULT, COLUMNS)                                                                                       \
    for (long c = 0; c < (COLUMNS); c++) to[c] = all->first ? (RESULT)of_row[c] : to[c] + (RESULT)of_row[c]

#define WHOLE_TILE(NAME, ONE, TYPE, VECTOR, WIDTH, TOTAL, ADD, RESULT)                                             \
    INLINE void NAME(const Go *go, const Sum *all, const TYPE *x, const TYPE *g, long i, long j, long rows,        \
                     const int outs) {                                                                             \
        const long columns = least(WIDTH, all->in - j);                                                            \
        RESULT *restrict to = (RESULT *)all->to + i * all->in + j;                                                 \
        TOTAL total[OUTS * WIDTH] __attribute__((aligned(64)));                                                    \
        memset(total, 0, sizeof(TOTAL) * (size_t)(outs * WIDTH));                                                  \
        for (long o = 0; o < rows; o++)                                                                            \
            for (long c = 0; c < columns; c += 64 / sizeof(RESULT)) __builtin_prefetch(to + o * all->in + c, 1);   \
        for (long s = 0; s < go->count; s++) {                                                                     \
            VECTOR sum[OUTS][VECTORS] __attribute__((aligned(64)));                                                \
            const long length = go->stretches[s].length;                                                           \
            const TOTAL factor = (TOTAL)go->stretches[s].factor;                                                   \
            ONE(x, g, length, sum, outs);                                                                          \
            ADD(total, factor, (const TYPE *)sum, outs * WIDTH);                                                   \
            x += length * WIDTH, g += length * OUTS;                                                               \
        }                                                                                                          \
        const TOTAL *of_row = total;                                                                               \
        for (long o = 0; o < rows; o++, to += all->in, of_row += WIDTH)                                            \
            if (columns == WIDTH) PUT(RESULT, WIDTH);                                                              \
            else PUT(RESULT, columns);                                                                             \
    }

#define BY_OUTS(NAME, ONE, TYPE)                                                                                   \
    static void NAME(const Go *go, const Sum *all, const TYPE *x, const TYPE *g, long i, long j) {                 \
        const long rows = least(OUTS, all->out - i);                                                               \
        if (rows <= 4) ONE(go, all, x, g, i, j, rows, 4);                                                          \
        else ONE(go, all, x, g, i, j, rows, OUTS);                                                                 \
    }

/* ---- one go: all threads copy the columns of x, and then each copies some panels of g at a time and computes ---- */

/* `room` holds the panels of x, and for each thread those of g. */
#define ADD_GO(NAME, TYPE, WIDTH, COPY_LINES, ADD_TILE)                                                            \
    static void NAME(const Go *go, const Sum *all, TYPE *room) {                                                   \
        const long panels = (all->ins + WIDTH - 1) / WIDTH, blocks = (all->out + BLOCK * OUTS - 1) / (BLOCK * OUTS); \
        const long pieces = all->threads > 1 ? least(panels, (PIECES * all->threads + blocks - 1) / blocks) : 1;   \
        int threads = 0;                                                                                           \
        _Pragma("omp parallel num_threads(all->threads) if (all->threads > 1)")                                    \
        {                                                                                                          \
            int thread;                                                                                            \
            _Pragma("omp atomic capture")                                                                          \
            thread = threads++;                                                                                    \
            TYPE *x = room, *g = room + (panels * WIDTH + thread * BLOCK * OUTS) * go->depth;                      \
            _Pragma("omp for schedule(static)")                                                                    \
            for (long k = 0; k < go->depth; k++)                                                                   \
                COPY_LINES(go, all->x + all->from, all->in, all->ins, WIDTH, 0, k, k + 1, x);                      \
            _Pragma("omp for schedule(dynamic) collapse(2) nowait")                                                \
            for (long start = 0; start < all->out; start += BLOCK * OUTS)                                          \
                for (long piece = 0; piece < pieces; piece++) {                                                    \
                    const long stop = least(all->out, start + BLOCK * OUTS);                                       \
                    const float *from = all->g + start;                                                            \
                    if (go->scaled) COPY_LINES(go, from, all->out, stop - start, OUTS, 1, 0, go->depth, g);        \
                    else COPY_LINES(go, from, all->out, stop - start, OUTS, 0, 0, go->depth, g);                   \
                    for (long j = panels * piece / pieces; j < panels * (piece + 1) / pieces; j++)                 \
                        for (long i = start; i < stop; i += OUTS)                                                  \
                            ADD_TILE(go, all, x + j * WIDTH * go->depth, g + (i - start) * go->depth, i,           \
                                     all->from + j * WIDTH);                                                       \
                }                                                                                                  \
        }                                                                                                          \
    }

#define SUMS(NAME, ONE, TYPE, VECTOR, WIDTH, TOTAL, ADD, RESULT, COPY_LINES)                                       \
    WHOLE_TILE(NAME##_in_tile, ONE, TYPE, VECTOR, WIDTH, TOTAL, ADD, RESULT)                                       \
    BY_OUTS(NAME##_by_outs, NAME##_in_tile, TYPE)                                                                  \
    ADD_GO(NAME, TYPE, WIDTH, COPY_LINES, NAME##_by_outs)

#define OF_DOUBLES(NAME, RESULT) \
    SUMS(NAME, tile_of_doubles, double, Doubles, DOUBLES, double, add_doubles, RESULT, copy_doubles)
#define OF_FLOATS(NAME, TOTAL, ADD, RESULT) \
    SUMS(NAME, tile_of_floats, float, Floats, FLOATS, TOTAL, ADD, RESULT, copy_floats)

OF_DOUBLES(doubles_to_doubles, double)
OF_DOUBLES(doubles_to_floats, float)
OF_FLOATS(floats_to_doubles, double, add_widened, double)
OF_FLOATS(floats_rounded, double, add_widened, float)
OF_FLOATS(floats_to_floats, float, add_floats, float)

/* ---- which lines ---- */

typedef struct { /* the records: which count for how much, and where in x and g the lines of each end */
    const double *factors;
    const long *ends; /* or none, where all have as many */
    long count, positions;
} Records;

static long end_of(const Records *all, long record) {
    return all->ends ? all->ends[record] : (record + 1) * all->positions;
}

/* The next lines, `most` or fewer, from line `*at` of record `*record` on; records of factor 0 are left out. A stretch is
   so many lines of scaled records, or the lines of one record.
   A record is cut where it says itself, at its own 256th positions, and not where others left room: that would round it
   by its place, and where the result is of floats its parts, which may be long, would round the others. */
static void next_go(const Records *all, long several, long most, long *record, long *at, Go *go) {
    go->depth = go->count = 0, go->scaled = all->positions <= FEW_POSITIONS;
    while (*record < all->count) {
        const long end = end_of(all, *record), begin = *record ? end_of(all, *record - 1) : 0;
        if (*at == end || all->factors[*record] == 0.0) {
            *at = end, ++*record;
            continue;
        }
        const long length = least(end - *at, DEPTH - (*at - begin) % DEPTH);
        if (length > most - go->depth) break;
        if (!go->scaled) go->stretches[go->count++] = (Stretch){length, all->factors[*record]};
        for (long k = 0; k < length; k++)
            go->lines[go->depth] = (*at)++, go->factors[go->depth++] = all->factors[*record];
    }
    for (long k = 0; go->scaled && k < go->depth; k += several)
        go->stretches[go->count++] = (Stretch){least(several, go->depth - k), 1.0};
}

/* to [out, in]; 0, or 1 where memory is short. `several`: records of one position that share a stretch, or 1; `single`:
   the result is of floats, and none may have more than DEPTH positions; several positions, or all records, are one
   stretch then, else their stretches are added in double precision and rounded once. Where `ends` is given,
   records have different numbers of positions, of which `positions` are what is usual. */
int tacit_outer_sum(const float *x, const float *g, const double *factors, const long *ends, long records,
                    long positions, long in, long out, long several, int single, void *to, int threads) {
    const Records all = {factors, ends, records, positions};
    if (positions > 1 || ends) several = 1;
    const int doubles = positions <= FEW_POSITIONS && several <= 1;
    const int rounded = single && positions == 1 && several < records;
    const long size = doubles ? sizeof(double) : sizeof(float), width = VECTORS * BYTES / size;
    const long lines = greatest(DEPTH, least(MOST, rounded ? records : ROOM / (2 * in * size))); /* one go: rounded once */
    const long panels = (in + width - 1) / width, fit = greatest(1, ROOM / (lines * width * size));
    const long chunks = (panels + fit - 1) / fit, chunk = (panels + chunks - 1) / chunks * width;
    void *room = aligned_alloc(64, (size_t)((chunk + threads * BLOCK * OUTS) * lines * size / 64 + 1) * 64);
    Go *go = malloc(sizeof *go);
    Sum sum = {x, g, in, out, 0, 0, to, 1, threads};
    for (long at = 0, record = 0; room && go; sum.first = 0) {
        next_go(&all, doubles ? MOST : several, lines, &record, &at, go);
        if (go->depth == 0) break;
        for (sum.from = 0; sum.from < in; sum.from += chunk) {
            sum.ins = least(chunk, in - sum.from);
            if (doubles && single) doubles_to_floats(go, &sum, room);
            else if (doubles) doubles_to_doubles(go, &sum, room);
            else if (rounded) floats_rounded(go, &sum, room);
            else if (single) floats_to_floats(go, &sum, room);
            else floats_to_doubles(go, &sum, room);
        }
    }
    if (room && go && sum.first) memset(to, 0, (single ? sizeof(float) : sizeof(double)) * (size_t)(in * out));
    const int failed = !room || !go;
    free(room), free(go);
    return failed;
}
