// Sums over the rows of [batch, rows, columns], column by column, in an order that depends only on the shape.
//
// A block has `across` threads side by side, each with one column (or eight), and 256 / across lanes of rows. Rows are
// divided into chunks. A lane adds every lanes-th row of its chunk; the lanes are joined as a tree; the chunks are
// joined by a second kernel, with 8 columns and 32 lanes in a block.
#pragma once

#include "worker/backend/cudnn/kernels/places.h"

namespace cairn::cudnn::kernels {

struct ColumnShape {
  int64_t batch, rows, columns;
  bool wide;
  int across_log2;
  int64_t tiles;  // blocks side by side
  int64_t chunks;
  int64_t chunk_rows;
};

inline ColumnShape ShapeOfColumns(int64_t batch, int64_t rows, int64_t columns, bool wide) {
  // Enough blocks for any GPU; a constant, so that sums are the same on all GPUs.
  constexpr int64_t kBlocks = 1024, kLaneRowsMin = 4;
  ColumnShape s{batch, rows, columns, wide, 0, 0, 0, 0};
  const int64_t groups = wide ? columns / kWide : columns;
  while (s.across_log2 < 5 && (int64_t{1} << s.across_log2) < groups) ++s.across_log2;
  s.tiles = CeilDivide(groups, int64_t{1} << s.across_log2);
  const int64_t chunk_min = (kBlockThreads >> s.across_log2) * kLaneRowsMin;
  int64_t chunks = kBlocks / (s.tiles * batch);
  if (chunks > CeilDivide(rows, chunk_min)) chunks = CeilDivide(rows, chunk_min);
  if (chunks < 1) chunks = 1;
  s.chunk_rows = CeilDivide(rows, chunks);
  s.chunks = CeilDivide(rows, s.chunk_rows);
  return s;
}

// A Sums has
//   kValues: how many numbers a column's sum is made of; all of them 0: the sum of no rows
//   Values<V>: what one thread adds up, a struct with at[kValues][V]
//   Begin<V>(batch, column), Add<V>(values, batch, row, column), End<V>(values): one thread's rows
//   Join(a, b): adds the kValues numbers of b to a
//   Finish(batch, column, values): what becomes of the sum.
template <class Sums>
int64_t ColumnScratch(const ColumnShape& s) {
  return s.chunks > 1 ? s.batch * s.chunks * Sums::kValues * s.columns : 0;
}

template <class Sums, int V>
struct SumChunks {
  static constexpr int kThreads = kBlockThreads;
  static constexpr int kSharedBytes = kThreads * V * Sums::kValues * 4;
  ColumnShape s;
  Divider tiles, chunks;
  Sums sums;
  float* partials;
  template <class B>
  CAIRN_DEVICE void operator()(B& block) const {
    float* values = block.template Shared<float>();  // [kValues][V][kThreads]
    int64_t rest, batch;
    const int64_t tile = tiles.Split(block.index(), &rest), chunk = chunks.Split(rest, &batch);
    const int across = 1 << s.across_log2, lanes = kThreads >> s.across_log2;
    const int64_t row_end = (chunk + 1) * s.chunk_rows < s.rows ? (chunk + 1) * s.chunk_rows : s.rows;
    const auto column_of = [&](int thread) { return (tile * across + (thread & (across - 1))) * V; };
    block.ForEachThread([&](int thread) {
      const int64_t column = column_of(thread);
      typename Sums::template Values<V> v = {};
      if (column < s.columns) {
        v = sums.template Begin<V>(batch, column);
        CAIRN_UNROLL_SOME
        for (int64_t row = chunk * s.chunk_rows + (thread >> s.across_log2); row < row_end; row += lanes) {
          sums.template Add<V>(v, batch, row, column);
        }
        sums.template End<V>(v);
      }
      CAIRN_UNROLL
      for (int k = 0; k < Sums::kValues; ++k) {
        CAIRN_UNROLL
        for (int j = 0; j < V; ++j) values[(k * V + j) * kThreads + thread] = v.at[k][j];
      }
    });
    for (int half = lanes / 2; half > 0; half /= 2) {
      block.ForEachThread([&](int thread) {
        if ((thread >> s.across_log2) >= half) return;
        CAIRN_UNROLL
        for (int j = 0; j < V; ++j) {
          float a[Sums::kValues], b[Sums::kValues];
          CAIRN_UNROLL
          for (int k = 0; k < Sums::kValues; ++k) {
            a[k] = values[(k * V + j) * kThreads + thread];
            b[k] = values[(k * V + j) * kThreads + thread + half * across];
          }
          Sums::Join(a, b);
          CAIRN_UNROLL
          for (int k = 0; k < Sums::kValues; ++k) values[(k * V + j) * kThreads + thread] = a[k];
        }
      });
    }
    block.ForEachThread([&](int thread) {
      const int64_t column = column_of(thread);
      if (thread >= across || column >= s.columns) return;
      CAIRN_UNROLL
      for (int j = 0; j < V; ++j) {
        float v[Sums::kValues];
        CAIRN_UNROLL
        for (int k = 0; k < Sums::kValues; ++k) v[k] = values[(k * V + j) * kThreads + thread];
        if (s.chunks == 1) {
          sums.Finish(batch, column + j, v);
        } else {
          CAIRN_UNROLL
          for (int k = 0; k < Sums::kValues; ++k) {
            partials[((batch * s.chunks + chunk) * Sums::kValues + k) * s.columns + column + j] = v[k];
          }
        }
      }
    });
  }
};

template <class Sums>
struct JoinChunks {
  static constexpr int kThreads = kBlockThreads;
  static constexpr int kAcross = 8, kLanes = kThreads / kAcross;  // 8 floats side by side: what memory gives at once
  static constexpr int kAhead = 4;                                // chunks that are loaded at the same time
  static constexpr int kSharedBytes = kThreads * Sums::kValues * 4;
  ColumnShape s;
  Divider tiles;
  Sums sums;
  const float* partials;
  template <class B>
  CAIRN_DEVICE void operator()(B& block) const {
    float* values = block.template Shared<float>();  // [kThreads][kValues]
    int64_t batch;
    const int64_t tile = tiles.Split(block.index(), &batch);
    block.ForEachThread([&](int thread) {
      const int64_t column = tile * kAcross + thread % kAcross;
      float a[Sums::kValues] = {};
      for (int64_t chunk = thread / kAcross; chunk < s.chunks && column < s.columns; chunk += kAhead * kLanes) {
        float b[kAhead][Sums::kValues] = {};
        CAIRN_UNROLL
        for (int i = 0; i < kAhead; ++i) {
          if (chunk + i * kLanes >= s.chunks) continue;
          const float* from = partials + (batch * s.chunks + chunk + i * kLanes) * Sums::kValues * s.columns + column;
          CAIRN_UNROLL
          for (int k = 0; k < Sums::kValues; ++k) b[i][k] = from[k * s.columns];
        }
        CAIRN_UNROLL
        for (int i = 0; i < kAhead; ++i) Sums::Join(a, b[i]);
      }
      CAIRN_UNROLL
      for (int k = 0; k < Sums::kValues; ++k) values[thread * Sums::kValues + k] = a[k];
    });
    for (int half = kLanes / 2; half > 0; half /= 2) {
      block.ForEachThread([&](int thread) {
        if (thread / kAcross < half)
          Sums::Join(values + thread * Sums::kValues, values + (thread + half * kAcross) * Sums::kValues);
      });
    }
    block.ForEachThread([&](int thread) {
      const int64_t column = tile * kAcross + thread;
      if (thread < kAcross && column < s.columns) sums.Finish(batch, column, values + thread * Sums::kValues);
    });
  }
};

template <class Sums>
Error LaunchColumns(Stream stream, const ColumnShape& s, const Sums& sums, float* scratch) {
  const int64_t blocks = s.batch * s.chunks * s.tiles;
  const Divider tiles(s.tiles, blocks), chunks(s.chunks, blocks);
  const Error error = s.wide ? Launch(stream, blocks, SumChunks<Sums, kWide>{s, tiles, chunks, sums, scratch})
                             : Launch(stream, blocks, SumChunks<Sums, 1>{s, tiles, chunks, sums, scratch});
  if (error != 0 || s.chunks == 1) return error;
  const int64_t joins = CeilDivide(s.columns, JoinChunks<Sums>::kAcross);
  return Launch(stream, s.batch * joins, JoinChunks<Sums>{s, Divider(joins, s.batch * joins), sums, scratch});
}

// Calls fn.Do<V>(fn.Of<V>(column), i, fn.Fetch<V>(i)) for every number i = row * columns + column of [rows, columns].
// What a column needs is computed once for all rows of a thread, and several rows are loaded before the first is
// processed.
template <class Fn, int V>
struct ForEachRow {
  static constexpr int kThreads = 128;  // of many registers each
  static constexpr int kSharedBytes = 0;
  static constexpr int kAhead = V == 1 ? 1 : 2;
  ColumnShape s;
  int64_t lane_rows;  // of a thread; a multiple of kAhead
  Divider tiles;
  Fn fn;
  template <class B>
  CAIRN_DEVICE void operator()(B& block) const {
    int64_t piece;
    const int64_t tile = tiles.Split(block.index(), &piece);
    const int across = 1 << s.across_log2, lanes = kThreads >> s.across_log2;
    block.ForEachThread([&](int thread) {
      const int64_t column = (tile * across + (thread & (across - 1))) * V;
      if (column >= s.columns) return;
      const auto of = fn.template Of<V>(column);
      const int64_t begin = piece * lanes * lane_rows + (thread >> s.across_log2), step = lanes * s.columns;
      const int64_t size = s.rows * s.columns, end = (begin + lanes * lane_rows) * s.columns;
      for (int64_t i = begin * s.columns + column; i < end && i < size; i += kAhead * step) {
        typename Fn::template Fetched<V> fetched[kAhead] = {};
        CAIRN_UNROLL
        for (int k = 0; k < kAhead; ++k) {
          if (i + k * step < size) fetched[k] = fn.template Fetch<V>(i + k * step);
        }
        CAIRN_UNROLL
        for (int k = 0; k < kAhead; ++k) {
          if (i + k * step < size) fn.template Do<V>(of, i + k * step, fetched[k]);
        }
      }
    });
  }
};

template <class Fn>
Error LaunchForEachRow(Stream stream, int64_t rows, int64_t columns, const Fn& fn) {
  // Just enough blocks for any GPU, since each thread computes what its column needs.
  constexpr int64_t kBlocks = 4096, kLaneRowsMin = 4, kLaneRowsMax = 64;
  const ColumnShape s = ShapeOfColumns(1, rows, columns, Wide(columns));
  const int64_t lanes = ForEachRow<Fn, 1>::kThreads >> s.across_log2;
  int64_t lane_rows = kLaneRowsMin;
  while (lane_rows < kLaneRowsMax && s.tiles * CeilDivide(rows, lanes * lane_rows) > kBlocks) lane_rows += kLaneRowsMin;
  const int64_t blocks = s.tiles * CeilDivide(rows, lanes * lane_rows);
  const Divider tiles(s.tiles, blocks);
  return s.wide ? Launch(stream, blocks, ForEachRow<Fn, kWide>{s, lane_rows, tiles, fn})
                : Launch(stream, blocks, ForEachRow<Fn, 1>{s, lane_rows, tiles, fn});
}

}  // namespace cairn::cudnn::kernels
