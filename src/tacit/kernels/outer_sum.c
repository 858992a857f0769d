/* The clipped sum of a linear map's gradients: [out, in] = sum over records of factor * (sum over positions of g^T x).

   Sums across records are in double precision, so that no record changes the rounding of the others by more than 2^-53.
   Records of few positions are summed in double precision altogether: a product of two floats is exact there. Records of
   many add up their own positions in single precision, in stretches that start anew, and each stretch goes into the
   double sum. The caller may allow stretches of several records of one position, in a sample so small that this rounding
   cannot exceed the slack; it takes half the time. There the sum may be rounded to floats at its end, and where all
   records may be one stretch, it is of floats altogether.

   All are products of matrices: a tile of OUTS by VECTORS vectors stays in registers while a stretch of lines (a line is
   one position of one record) goes by, from copies ("panels") that lie in memory in the order in which they are read. A
   tile is computed by one thread, line after line: the number of threads changes no bit. */

#include <stdlib.h>
#include <string.h>
#ifdef __AVX512F__
#include <immintrin.h>
#endif

#define INLINE static inline __attribute__((always_inline))

static long least(long a, long b) { return a < b ? a : b; }

#ifdef __AVX512F__
#define BYTES 64
#define OUTS 8
#define VECTORS 1 /* 8 of 32 registers hold the tile, 16 its sum in double precision */
#else
#define BYTES 32
#define OUTS 6
#define VECTORS 2 /* 12 of 16 */
#endif

#define DEPTH 256       /* lines of a part */
#define SLAB 8          /* lines that are copied together */
#define BLOCK 4         /* panels of g that are one thread's next piece of work ... */
#define CHUNK 8         /* ... together with so many of x, which stay in the second-level cache */
#define PARTS 16        /* so many times DEPTH lines between two waits of the threads for each other ... */
#define ROOM (4L << 20) /* ... or copies of so many bytes */
#define MOST 2048       /* outputs and inputs at a time */
#define FEW_POSITIONS 8 /* up to here the double sum of a record costs less than adding it to the others would */

typedef double Doubles __attribute__((vector_size(BYTES), aligned(8)));
typedef float Floats __attribute__((vector_size(BYTES), aligned(4)));
typedef float Half __attribute__((vector_size(BYTES / 2), aligned(4)));

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
    void *to;  /* doubles, or floats */
    int first; /* nothing is there yet to add to */
} Part;

/* ---- copies in the order in which they are read ---- */

/* Lines `start` to `stop` of a part into panels [depth][width] of their columns, zeros behind the last; times factors
   where wanted. Few lines at a time, so that each is read from end to end while the panels are written by the piece. */
#define COPY(NAME, TYPE)                                                                                           \
    INLINE void NAME(const Part *p, const float *from, long stride, long columns, const long width,                \
                     const int scaled, long start, long stop, TYPE *restrict to) {                                 \
        const float *lines[SLAB];                                                                                  \
        double factors[SLAB];                                                                                      \
        for (long r = 0, at = 0; r < p->count; at += p->runs[r++].length)                                          \
            for (long t = at > start ? at : start; t < least(stop, at + p->runs[r].length); t++)                   \
                lines[t - start] = from + (p->runs[r].line + t - at) * stride, factors[t - start] = p->runs[r].factor; \
        for (long c = 0; c < columns; c += width)                                                                  \
            for (long t = 0; t < stop - start; t++) {                                                              \
                TYPE *restrict panel = to + c * p->depth + (start + t) * width;                                    \
                const float *restrict line = lines[t] + c;                                                         \
                const double factor = scaled ? factors[t] : 1.0;                                                   \
                const long left = columns - c;                                                                     \
                if (left >= width)                                                                                 \
                    for (long k = 0; k < width; k++) panel[k] = (TYPE)(factor * (double)line[k]);                  \
                else                                                                                               \
                    for (long k = 0; k < width; k++) panel[k] = k < left ? (TYPE)(factor * (double)line[k]) : (TYPE)0; \
            }                                                                                                      \
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

/* What a stretch adds to the sum. Nearly always the factor is 1, and sums do not wait for the units that multiply. */
#define ADD_UP(NAME, TYPE, TOTAL)                                                                                  \
    INLINE void NAME(TOTAL *restrict total, const TOTAL factor, const TYPE *restrict sum, const int count) {       \
        for (int c = 0; c < count; c++) total[c] += factor * (TOTAL)sum[c];                                        \
    }

ADD_UP(add_doubles, double, double)
ADD_UP(add_floats, float, float)
#ifdef __AVX512F__ /* where the sum stays in registers */
INLINE void add_widened(double *total, const double factor, const float *sum, const int count) {
    for (int c = 0; c < count; c += 16) {
        const __m512 some = _mm512_loadu_ps(sum + c);
        const __m256 high = (__m256)_mm512_extractf64x4_pd((__m512d)some, 1);
        *(Doubles *)(total + c) += factor * (Doubles)_mm512_cvtps_pd(_mm512_castps512_ps256(some));
        *(Doubles *)(total + c + 8) += factor * (Doubles)_mm512_cvtps_pd(high);
    }
}
#else
ADD_UP(add_widened, float, double)
#endif

/* A tile of the result: all stretches of all parts are added to it, in registers if there are enough, and then it goes
   to where it belongs. `outs` is what the compiler unrolls, `rows` what there is. */
#define WHOLE_TILE(NAME, ONE, TYPE, VECTOR, WIDTH, TOTAL, TOTALS, ADD, RESULT)                                     \
    INLINE void NAME(const Part *parts, long count, const TYPE *room, long line, long i, long j, long rows,        \
                     const int outs) {                                                                             \
        enum { EACH = sizeof(TOTAL) / sizeof(TYPE) }; /* vectors of the sum for one of a stretch */                \
        const long x_columns = (parts->ins + WIDTH - 1) / WIDTH * WIDTH, columns = least(WIDTH, parts->ins - j);   \
        TOTALS total[OUTS][VECTORS * EACH];                                                                        \
        for (int o = 0; o < outs; o++)                                                                             \
            for (int v = 0; v < VECTORS * EACH; v++) total[o][v] = (TOTALS){0};                                    \
        for (const Part *p = parts; p < parts + count; p++) {                                                      \
            const TYPE *x = room + p->before * line + j * p->depth;                                                \
            const TYPE *g = room + p->before * line + (x_columns + i) * p->depth;                                  \
            for (long s = 0; s < p->parts; s++) {                                                                  \
                VECTOR sum[OUTS][VECTORS];                                                                         \
                const long length = p->stretches[s].length;                                                        \
                const TOTAL factor = (TOTAL)p->stretches[s].factor;                                                \
                ONE(x, g, length, sum, outs);                                                                      \
                if (factor == 1) ADD((TOTAL *)total, 1, (const TYPE *)sum, outs * WIDTH);                          \
                else ADD((TOTAL *)total, factor, (const TYPE *)sum, outs * WIDTH);                                 \
                x += length * WIDTH, g += length * OUTS;                                                           \
            }                                                                                                      \
        }                                                                                                          \
        for (long o = 0; o < rows; o++) {                                                                          \
            RESULT *restrict to = (RESULT *)parts->to + (i + o) * parts->in + j;                                   \
            const TOTAL *of_row = (const TOTAL *)total[o];                                                         \
            if (parts->first)                                                                                      \
                for (long c = 0; c < columns; c++) to[c] = (RESULT)of_row[c];                                      \
            else                                                                                                   \
                for (long c = 0; c < columns; c++) to[c] += (RESULT)of_row[c];                                     \
        }                                                                                                          \
    }

#define BY_OUTS(NAME, ONE, TYPE)                                                                                   \
    static void NAME(const Part *parts, long count, const TYPE *room, long line, long i, long j) {                 \
        const long rows = least(OUTS, parts->outs - i);                                                            \
        switch (rows) {                                                                                            \
        case 1: ONE(parts, count, room, line, i, j, rows, 1); return;                                              \
        case 2: ONE(parts, count, room, line, i, j, rows, 2); return;                                              \
        case 3:                                                                                                    \
        case 4: ONE(parts, count, room, line, i, j, rows, 4); return;                                              \
        default: ONE(parts, count, room, line, i, j, rows, OUTS); return;                                          \
        }                                                                                                          \
    }

/* ---- several parts: all threads copy, then all threads compute; they wait for each other once ---- */

/* The parts are for the same outputs and inputs. `room` holds the panels of x of the first part, those of g, and so on. */
#define ADD_PARTS(NAME, TYPE, WIDTH, COPY_LINES, ADD_TILE)                                                         \
    static void NAME(const Part *parts, long count, TYPE *room, int threads) {                                     \
        const long x_panels = (parts->ins + WIDTH - 1) / WIDTH, g_panels = (parts->outs + OUTS - 1) / OUTS;        \
        const long blocks = (g_panels + BLOCK - 1) / BLOCK, chunks = (x_panels + CHUNK - 1) / CHUNK;               \
        const long line = x_panels * WIDTH + g_panels * OUTS; /* numbers to copy */                                \
        _Pragma("omp parallel num_threads(threads) if (threads > 1)")                                              \
        {                                                                                                          \
            _Pragma("omp for schedule(static) collapse(2)")                                                        \
            for (long part = 0; part < count; part++)                                                              \
                for (long start = 0; start < DEPTH; start += SLAB) {                                               \
                    const Part *p = parts + part;                                                                  \
                    const long stop = least(start + SLAB, p->depth);                                               \
                    TYPE *x = room + p->before * line, *g = x + x_panels * WIDTH * p->depth;                       \
                    if (start >= stop) continue;                                                                   \
                    COPY_LINES(p, p->x, p->in, p->ins, WIDTH, 0, start, stop, x);                                  \
                    if (p->scaled) COPY_LINES(p, p->g, p->out, p->outs, OUTS, 1, start, stop, g);                  \
                    else COPY_LINES(p, p->g, p->out, p->outs, OUTS, 0, start, stop, g);                            \
                }                                                                                                  \
            _Pragma("omp for schedule(dynamic) collapse(2) nowait")                                                \
            for (long chunk = 0; chunk < chunks; chunk++)                                                          \
                for (long block = 0; block < blocks; block++)                                                      \
                    for (long i = block * BLOCK; i < g_panels && i < (block + 1) * BLOCK; i++)                     \
                        for (long j = chunk * CHUNK; j < x_panels && j < (chunk + 1) * CHUNK; j++)                 \
                            ADD_TILE(parts, count, room, line, i * OUTS, j * WIDTH);                               \
        }                                                                                                          \
    }

#define SUMS(NAME, ONE, TYPE, VECTOR, WIDTH, TOTAL, TOTALS, ADD, RESULT, COPY_LINES)                               \
    WHOLE_TILE(NAME##_in_tile, ONE, TYPE, VECTOR, WIDTH, TOTAL, TOTALS, ADD, RESULT)                               \
    BY_OUTS(NAME##_by_outs, NAME##_in_tile, TYPE)                                                                  \
    ADD_PARTS(NAME, TYPE, WIDTH, COPY_LINES, NAME##_by_outs)

#define OF_DOUBLES(NAME, RESULT) \
    SUMS(NAME, tile_of_doubles, double, Doubles, DOUBLES, double, Doubles, add_doubles, RESULT, copy_doubles)
#define OF_FLOATS(NAME, TOTAL, TOTALS, ADD, RESULT) \
    SUMS(NAME, tile_of_floats, float, Floats, FLOATS, TOTAL, TOTALS, ADD, RESULT, copy_floats)

OF_DOUBLES(doubles_to_doubles, double)
OF_DOUBLES(doubles_to_floats, float)
OF_FLOATS(floats_to_doubles, double, Doubles, add_widened, double)
OF_FLOATS(floats_rounded, double, Doubles, add_widened, float)
OF_FLOATS(floats_to_floats, float, Floats, add_floats, float)

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
   A record is cut where it says itself, at its own 256th positions, and not where others left room: that would round it
   by its place, and where the result is of floats its parts, which may be long, would round the others. */
static long next_runs(const Records *all, long *record, long *at, Run *runs, long *depth) {
    long count = 0;
    for (*depth = 0; *record < all->count && *depth < DEPTH;) {
        long end = end_of(all, *record), begin = *record ? end_of(all, *record - 1) : 0;
        if (*at == end || all->factors[*record] == 0.0) {
            *at = end, ++*record;
            continue;
        }
        long length = least(end - *at, DEPTH - (*at - begin) % DEPTH), room = DEPTH - *depth;
        if (length > room) break;
        runs[count++] = (Run){*at, length, all->factors[*record]};
        *at += length, *depth += length;
    }
    return count;
}

/* What a tile adds up in registers: so many lines of scaled records, or each run by itself. */
static long stretches_of(const Part *p, long lines, Stretch *stretches) {
    long found = 0;
    if (p->scaled)
        for (long at = 0; at < p->depth; at += lines) stretches[found++] = (Stretch){least(lines, p->depth - at), 1.0};
    else
        for (; found < p->count; found++) stretches[found] = (Stretch){p->runs[found].length, p->runs[found].factor};
    return found;
}

typedef struct {
    Part parts[PARTS];
    Run runs[PARTS][DEPTH];
    Stretch stretches[PARTS][DEPTH];
} Plan;

/* The parts that the copies have room for; returns how many. */
static long next_parts(const Records *all, long lines, long *record, long *at, long most, Plan *plan) {
    long count = 0;
    for (long before = 0; count < most; count++) {
        Part *p = plan->parts + count;
        p->runs = plan->runs[count], p->before = before;
        p->count = next_runs(all, record, at, plan->runs[count], &p->depth);
        if (p->count == 0) break;
        p->scaled = all->positions <= FEW_POSITIONS;
        p->stretches = plan->stretches[count];
        p->parts = stretches_of(p, lines, plan->stretches[count]);
        before += (p->depth + 15) / 16 * 16; /* so that every part starts a cache line */
    }
    return count;
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
    const long size = doubles ? sizeof(double) : sizeof(float);
    const long line = size * (least(in, MOST) + FLOATS + least(out, MOST) + OUTS), fit = ROOM / (DEPTH * line);
    const long wanted = rounded ? (records + DEPTH - 1) / DEPTH : fit < 1 ? 1 : fit; /* one go: rounded once */
    const long most = least(wanted, PARTS), lines = least(most * DEPTH, end_of(&all, records - 1) + 16 * most);
    void *room = aligned_alloc(64, (size_t)(line * lines / 64 + 1) * 64);
    Plan *plan = malloc(sizeof *plan);
    long count, first = 1;
    for (long at = 0, record = 0; room && plan; first = 0) {
        count = next_parts(&all, doubles ? DEPTH : several, &record, &at, most, plan);
        if (count == 0) break;
        for (long i = 0; i < out; i += MOST)
            for (long j = 0; j < in; j += MOST) {
                for (Part *p = plan->parts; p < plan->parts + count; p++) {
                    p->x = x + j, p->g = g + i, p->in = in, p->out = out, p->first = first;
                    p->to = single ? (void *)((float *)to + i * in + j) : (void *)((double *)to + i * in + j);
                    p->ins = least(MOST, in - j), p->outs = least(MOST, out - i);
                }
                if (doubles && single) doubles_to_floats(plan->parts, count, room, threads);
                else if (doubles) doubles_to_doubles(plan->parts, count, room, threads);
                else if (rounded) floats_rounded(plan->parts, count, room, threads);
                else if (single) floats_to_floats(plan->parts, count, room, threads);
                else floats_to_doubles(plan->parts, count, room, threads);
            }
    }
    if (room && plan && first) memset(to, 0, (single ? sizeof(float) : sizeof(double)) * (size_t)(in * out));
    int failed = !room || !plan;
    free(room), free(plan);
    return failed;
}
