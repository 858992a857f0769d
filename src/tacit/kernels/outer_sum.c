/* The clipped sum of a linear map's gradients: [out, in] = sum over records of factor * (sum over positions of g^T x).

   Sums across records are in double precision, so that no record changes the rounding of the others by more than 2^-53.
   Records of few positions are summed in double precision altogether: a product of two floats is exact there. Records of
   many add up their own positions in single precision, in stretches that start anew, and each stretch goes into the
   double sum. The caller may allow stretches of several records of one position, in a sample so small that this rounding
   cannot exceed the slack; it takes half the time.

   Both are products of matrices: a tile of OUTS by VECTORS vectors stays in registers while DEPTH lines (a line is one
   position of one record) go by, from copies ("panels") that lie in memory in the order in which they are read. A tile
   is computed by one thread, line after line: the number of threads changes no bit. */

#include <stdlib.h>
#include <string.h>

#define INLINE static inline __attribute__((always_inline))

static long least(long a, long b) { return a < b ? a : b; }

#if defined(__AVX512F__) || defined(TACIT_WIDE)
#define BYTES 64
#define OUTS 8
#define VECTORS 3 /* 24 of 32 registers hold the tile */
#else
#define BYTES 32
#define OUTS 6
#define VECTORS 2 /* 12 of 16 */
#endif

#define DEPTH 256       /* lines at a time: one panel of x stays in the first-level cache, a block of g in the second */
#define BLOCK 6         /* panels of g that are one thread's next piece of work ... */
#define CHUNK 32        /* ... together with so many of x */
#define PARTS 16        /* so many times DEPTH lines between two waits of the threads for each other ... */
#define ROOM (8L << 20) /* ... or copies of so many bytes */
#define MOST 2048       /* outputs and inputs at a time */
#define FEW_POSITIONS 8 /* up to here the double sum of a record costs less than adding it to the others would */

typedef double Doubles __attribute__((vector_size(BYTES), aligned(8)));
typedef float Floats __attribute__((vector_size(BYTES), aligned(4)));

typedef struct {
    long line; /* of the first position, in x and g; the others follow */
    long length;
    double factor;
} Run;

typedef struct { /* lines that are added up in single precision, and what their sum counts for */
    long length;
    double factor;
} Stretch;

typedef struct { /* the lines that are added in one go, and the part of the result that they are added to */
    const Run *runs;
    const Stretch *stretches;
    long count, parts, depth, before; /* runs, stretches, lines, and the room of the parts before in lines */
    int scaled;                       /* factors are in the copies of g, not in the stretches */
    const float *x, *g; /* at the part's first column */
    long in, out;       /* from one line to the next */
    long ins, outs;
    double *to;
    int first; /* nothing is there yet to add to */
} Part;

/* ---- copies in the order in which they are read ---- */

/* [depth][width] of the columns from `from` on, zeros behind the last that is left; times factors where wanted */
#define COPY(NAME, TYPE)                                                                                           \
    INLINE void NAME(const Part *p, const float *from, long stride, long left, const long width, const int scaled, \
                     TYPE *restrict to) {                                                                          \
        for (long r = 0; r < p->count; r++) {                                                                      \
            const float *line = from + p->runs[r].line * stride;                                                   \
            const double factor = scaled ? p->runs[r].factor : 1.0;                                                \
            for (long t = 0; t < p->runs[r].length; t++, line += stride, to += width)                              \
                if (left >= width)                                                                                 \
                    for (long c = 0; c < width; c++) to[c] = (TYPE)(factor * (double)line[c]);                     \
                else                                                                                               \
                    for (long c = 0; c < width; c++) to[c] = c < left ? (TYPE)(factor * (double)line[c]) : (TYPE)0;\
        }                                                                                                          \
    }

COPY(copy_doubles, double)
COPY(copy_floats, float)

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

/* to += factor * sum, for all columns of a tile or only the last few */
#define ADD_ROW(NAME, TYPE, WIDTH)                                                                                 \
    INLINE void NAME(const TYPE *sum, double factor, double *restrict to, long columns, int first) {               \
        if (columns >= WIDTH && first)                                                                             \
            for (long c = 0; c < WIDTH; c++) to[c] = factor * (double)sum[c];                                      \
        else if (columns >= WIDTH)                                                                                 \
            for (long c = 0; c < WIDTH; c++) to[c] += factor * (double)sum[c];                                     \
        else                                                                                                       \
            for (long c = 0; c < columns; c++) to[c] = (first ? 0.0 : to[c]) + factor * (double)sum[c];            \
    }

ADD_ROW(add_row_of_doubles, double, DOUBLES)
ADD_ROW(add_row_of_floats, float, FLOATS)

/* `outs` is what the compiler unrolls, `rows` what there is. */
INLINE void add_doubles(const Part *p, const double *x, const double *g, double *to, long columns, long rows,
                        const int outs) {
    Doubles sum[OUTS][VECTORS];
    tile_of_doubles(x, g, p->depth, sum, outs);
    for (long o = 0; o < rows; o++) add_row_of_doubles((const double *)sum[o], 1.0, to + o * p->in, columns, p->first);
}

INLINE void add_floats(const Part *p, const float *x, const float *g, double *to, long columns, long rows,
                       const int outs) {
    Floats sum[OUTS][VECTORS];
    for (long s = 0; s < p->parts; s++) {
        const Stretch *stretch = p->stretches + s;
        tile_of_floats(x, g, stretch->length, sum, outs);
        x += stretch->length * FLOATS, g += stretch->length * OUTS;
        for (long o = 0; o < rows; o++)
            add_row_of_floats((const float *)sum[o], stretch->factor, to + o * p->in, columns, p->first && s == 0);
    }
}

#define BY_OUTS(NAME, ONE, TYPE)                                                                                   \
    static void NAME(const Part *p, const TYPE *x, const TYPE *g, double *to, long columns, long rows) {           \
        switch (rows) {                                                                                            \
        case 1: ONE(p, x, g, to, columns, rows, 1); return;                                                        \
        case 2: ONE(p, x, g, to, columns, rows, 2); return;                                                        \
        case 3: ONE(p, x, g, to, columns, rows, 3); return;                                                        \
        case 4: ONE(p, x, g, to, columns, rows, 4); return;                                                        \
        case OUTS: ONE(p, x, g, to, columns, OUTS, OUTS); return;                                                  \
        default: ONE(p, x, g, to, columns, rows, OUTS); return;                                                    \
        }                                                                                                          \
    }

BY_OUTS(tile_by_doubles, add_doubles, double)
BY_OUTS(tile_by_floats, add_floats, float)

/* ---- several parts: all threads copy, then all threads compute; they wait for each other once ---- */

/* The parts are for the same outputs and inputs. `room` holds the panels of x of the first part, those of g, and so on. */
#define ADD_PARTS(NAME, TYPE, WIDTH, COPY_LINES, ADD_TILE)                                                 \
    static void NAME(const Part *parts, long count, TYPE *room, int threads) {                                     \
        const long x_panels = (parts->ins + WIDTH - 1) / WIDTH, g_panels = (parts->outs + OUTS - 1) / OUTS;        \
        const long blocks = (g_panels + BLOCK - 1) / BLOCK, chunks = (x_panels + CHUNK - 1) / CHUNK;               \
        const long line = x_panels * WIDTH + g_panels * OUTS; /* numbers to copy */                                \
        _Pragma("omp parallel num_threads(threads) if (threads > 1)")                                              \
        {                                                                                                          \
            _Pragma("omp for schedule(static) collapse(2)")                                                        \
            for (long part = 0; part < count; part++)                                                              \
                for (long k = 0; k < x_panels + g_panels; k++) {                                                   \
                    const Part *p = parts + part;                                                                  \
                    TYPE *x = room + p->before * line, *g = x + x_panels * WIDTH * p->depth;                       \
                    long j = k * WIDTH, i = (k - x_panels) * OUTS;                                                 \
                    if (k < x_panels) COPY_LINES(p, p->x + j, p->in, p->ins - j, WIDTH, 0, x + j * p->depth);      \
                    else COPY_LINES(p, p->g + i, p->out, p->outs - i, OUTS, p->scaled, g + i * p->depth);          \
                }                                                                                                  \
            _Pragma("omp for schedule(dynamic) collapse(2) nowait")                                                \
            for (long block = 0; block < blocks; block++)                                                          \
                for (long chunk = 0; chunk < chunks; chunk++)                                                      \
                    for (const Part *p = parts; p < parts + count; p++) {                                          \
                        const TYPE *x = room + p->before * line, *g = x + x_panels * WIDTH * p->depth;             \
                        for (long j = chunk * CHUNK; j < x_panels && j < (chunk + 1) * CHUNK; j++)                 \
                            for (long i = block * BLOCK; i < g_panels && i < (block + 1) * BLOCK; i++)             \
                                ADD_TILE(p, x + j * WIDTH * p->depth, g + i * OUTS * p->depth,                     \
                                         p->to + i * OUTS * p->in + j * WIDTH, p->ins - j * WIDTH,                 \
                                         least(OUTS, p->outs - i * OUTS));                                         \
                    }                                                                                              \
        }                                                                                                          \
    }

ADD_PARTS(add_by_doubles, double, DOUBLES, copy_doubles, tile_by_doubles)
ADD_PARTS(add_by_floats, float, FLOATS, copy_floats, tile_by_floats)

/* ---- which lines ---- */

typedef struct { /* the records: which count for how much, and where in x and g the lines of each end */
    const double *factors;
    const long *ends; /* or none, where all have as many */
    long count, positions;
} Records;

static long end_of(const Records *all, long record) {
    return all->ends ? all->ends[record] : (record + 1) * all->positions;
}

/* The next runs, of DEPTH lines at most, from line `*at` of record `*record` on; records of factor 0 are left out.
   What is added up in single precision is cut where the record says, not where others left room: that would round it
   by its place. */
static long next_runs(const Records *all, long *record, long *at, Run *runs, long *depth) {
    long count = 0;
    for (*depth = 0; *record < all->count && *depth < DEPTH;) {
        long end = end_of(all, *record), begin = *record ? end_of(all, *record - 1) : 0;
        if (*at == end || all->factors[*record] == 0.0) {
            *at = end, ++*record;
            continue;
        }
        long length = least(end - *at, DEPTH - (*at - begin) % DEPTH), room = DEPTH - *depth;
        if (length > room && all->positions > FEW_POSITIONS) break;
        length = least(length, room);
        runs[count++] = (Run){*at, length, all->factors[*record]};
        *at += length, *depth += length;
    }
    return count;
}

/* What is added up in single precision: the lines of several records, or each run by itself. */
static long stretches_of(const Run *runs, long count, long depth, long several, Stretch *stretches) {
    long found = 0;
    if (several > 1)
        for (long at = 0; at < depth; at += several) stretches[found++] = (Stretch){least(several, depth - at), 1.0};
    else
        for (; found < count; found++) stretches[found] = (Stretch){runs[found].length, runs[found].factor};
    return found;
}

typedef struct {
    Part parts[PARTS];
    Run runs[PARTS][DEPTH];
    Stretch stretches[PARTS][DEPTH];
} Plan;

/* The parts that the copies have room for; returns how many. */
static long next_parts(const Records *all, long several, long *record, long *at, long most, Plan *plan) {
    long count = 0;
    for (long before = 0; count < most; count++) {
        Part *p = plan->parts + count;
        p->runs = plan->runs[count], p->before = before;
        p->count = next_runs(all, record, at, plan->runs[count], &p->depth);
        if (p->count == 0) break;
        p->stretches = plan->stretches[count];
        p->parts = stretches_of(p->runs, p->count, p->depth, several, plan->stretches[count]);
        p->scaled = all->positions <= FEW_POSITIONS;
        before += (p->depth + 15) / 16 * 16; /* so that every part starts a cache line */
    }
    return count;
}

/* to [out, in]; 0, or 1 where memory is short. `several`: records of one position that share a stretch, or 1.
   Where `ends` is given, records have different numbers of positions, of which `positions` are what is usual. */
int tacit_outer_sum(const float *x, const float *g, const double *factors, const long *ends, long records,
                    long positions, long in, long out, long several, double *to, int threads) {
    const Records all = {factors, ends, records, positions};
    if (positions > 1 || ends) several = 1;
    const int doubles = positions <= FEW_POSITIONS && several <= 1;
    const long size = doubles ? sizeof(double) : sizeof(float);
    const long line = size * (least(in, MOST) + FLOATS + least(out, MOST) + OUTS), fit = ROOM / (DEPTH * line);
    const long most = fit < 1 ? 1 : least(fit, PARTS), lines = least(most * DEPTH, end_of(&all, records - 1) + 16 * most);
    void *room = aligned_alloc(64, (size_t)(line * lines / 64 + 1) * 64);
    Plan *plan = malloc(sizeof *plan);
    long count, first = 1;
    for (long at = 0, record = 0; room && plan; first = 0) {
        count = next_parts(&all, several, &record, &at, most, plan);
        if (count == 0) break;
        for (long i = 0; i < out; i += MOST)
            for (long j = 0; j < in; j += MOST) {
                for (Part *p = plan->parts; p < plan->parts + count; p++) {
                    p->x = x + j, p->g = g + i, p->to = to + i * in + j, p->in = in, p->out = out;
                    p->ins = least(MOST, in - j), p->outs = least(MOST, out - i), p->first = first && p == plan->parts;
                }
                if (doubles) add_by_doubles(plan->parts, count, room, threads);
                else add_by_floats(plan->parts, count, room, threads);
            }
    }
    if (room && plan && first) memset(to, 0, sizeof(double) * (size_t)(in * out));
    int failed = !room || !plan;
    free(room), free(plan);
    return failed;
}
