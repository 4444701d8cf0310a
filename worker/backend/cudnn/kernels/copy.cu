// Copies, conversions and permutations.
#include "worker/backend/cudnn/kernels/places.h"

namespace cairn::cudnn::kernels {
namespace {

struct AffineMap {
  float scale, offset;
  bool plain;  // 1 x + 0 would lose the sign of a zero
  bool add;
  In from;
  Out to;
  template <int V>
  CAIRN_DEVICE void Do(int64_t i) const {
    Numbers<V> n = Load<V>(from, i);
    if (!plain) {
      CAIRN_UNROLL
      for (int k = 0; k < V; ++k) n.at[k] = n.at[k] * scale + offset;
    }
    StoreOrAdd<V>(to, i, n, add);
  }
};

struct AffineOfBytesMap {
  float scale, offset;
  bool plain;  // as AffineMap: the same bits as of the same numbers in float32
  const uint8_t* from;
  Out to;
  template <int V>
  CAIRN_DEVICE void Do(int64_t i) const {
    Numbers<V> n = LoadBytes<V>(from, i);
    if (!plain) {
      CAIRN_UNROLL
      for (int k = 0; k < V; ++k) n.at[k] = n.at[k] * scale + offset;
    }
    Store<V>(to, i, n);
  }
};

struct Transposition {
  static constexpr int kTile = 32;
  static constexpr int kThreads = kBlockThreads;
  static constexpr int kSharedBytes = kTile * (kTile + 1) * 4;
  int64_t rows, columns;
  Divider tiles_across;
  In from;
  Out to;
  template <class B>
  CAIRN_DEVICE void operator()(B& block) const {
    float* tile = block.template Shared<float>();
    int64_t row0, column0 = tiles_across.Split(block.index(), &row0) * kTile;
    row0 *= kTile;
    block.ForEachThread([&](int thread) {
      for (int y = thread / kTile; y < kTile; y += kThreads / kTile) {
        const int64_t row = row0 + y, column = column0 + thread % kTile;
        if (row < rows && column < columns) tile[y * (kTile + 1) + thread % kTile] = At(from, row * columns + column);
      }
    });
    block.ForEachThread([&](int thread) {
      for (int y = thread / kTile; y < kTile; y += kThreads / kTile) {
        const int64_t column = column0 + y, row = row0 + thread % kTile;
        if (row < rows && column < columns) Set(to, column * rows + row, tile[thread % kTile * (kTile + 1) + y]);
      }
    });
  }
};

struct ColumnCopy {
  Divider width;
  int64_t from_width, from_begin, to_width, to_begin;
  bool add;
  In from;
  Out to;
  template <int V>
  CAIRN_DEVICE void Do(int64_t i) const {
    int64_t row;
    const int64_t column = width.Split(i, &row);
    StoreOrAdd<V>(to, row * to_width + to_begin + column, Load<V>(from, row * from_width + from_begin + column), add);
  }
};

struct Permutation {
  Divider dims[4];  // the first is not used
  int64_t strides[4];
  bool add;
  In from;
  Out to;
  template <int V>
  CAIRN_DEVICE void Do(int64_t i) const {
    int64_t rest = i, place = 0;
    CAIRN_UNROLL
    for (int d = 3; d > 0; --d) place += dims[d].Split(rest, &rest) * strides[d];
    StoreOrAdd<V>(to, i, Load<V>(from, place + rest * strides[0]), add);
  }
};

struct Padding {
  Places small, large;
  int64_t top, left;
  In from;
  Out to;
  template <int V>
  CAIRN_DEVICE void Do(int64_t i) const {
    const Place p = large.Of(i);
    const int64_t y = p.y - top, x = p.x - left;
    Numbers<V> n = {};
    if (y >= 0 && y < small.height.divisor() && x >= 0 && x < small.width.divisor())
      n = Load<V>(from, small.Index(p.example, y, x, p.channel));
    Store<V>(to, i, n);
  }
};

struct Cropping {
  Places small, large;
  int64_t top, left;
  bool add;
  In from;
  Out to;
  template <int V>
  CAIRN_DEVICE void Do(int64_t i) const {
    const Place p = small.Of(i);
    StoreOrAdd<V>(to, i, Load<V>(from, large.Index(p.example, p.y + top, p.x + left, p.channel)), add);
  }
};

// The sources of position `to` of the larger axis: (1 - share) of `low` and `share` of `high`.
struct Between {
  int64_t low, high;
  float share;
};
CAIRN_DEVICE Between PlaceBetween(int64_t to, int64_t size, int64_t factor, bool bilinear) {
  if (!bilinear) return {to / factor, to / factor, 0.0f};
  const float place = (static_cast<float>(to) + 0.5f) / static_cast<float>(factor) - 0.5f;
  const int64_t low = place < 0 ? -1 : static_cast<int64_t>(place);
  return {low < 0 ? 0 : low, low + 1 < size ? low + 1 : size - 1, place - static_cast<float>(low)};
}
// The share of position `from` of the smaller axis in position `to` of the larger one.
CAIRN_DEVICE float ShareOf(int64_t from, int64_t to, int64_t size, int64_t factor, bool bilinear) {
  const Between b = PlaceBetween(to, size, factor, bilinear);
  return (b.low == from ? 1 - b.share : 0.0f) + (b.high == from ? b.share : 0.0f);
}

struct UpSample {
  Places small, large;
  int64_t factor_y, factor_x;
  bool bilinear;
  In from;
  Out to;
  template <int V>
  CAIRN_DEVICE void Do(int64_t i) const {
    const Place p = large.Of(i);
    const Between row = PlaceBetween(p.y, small.height.divisor(), factor_y, bilinear);
    const Between column = PlaceBetween(p.x, small.width.divisor(), factor_x, bilinear);
    Numbers<V> n = Load<V>(from, small.Index(p.example, row.low, column.low, p.channel));
    if (bilinear) {
      const Numbers<V> right = Load<V>(from, small.Index(p.example, row.low, column.high, p.channel));
      const Numbers<V> below = Load<V>(from, small.Index(p.example, row.high, column.low, p.channel));
      const Numbers<V> last = Load<V>(from, small.Index(p.example, row.high, column.high, p.channel));
      const float up = 1 - row.share, left = 1 - column.share;
      CAIRN_UNROLL
      for (int k = 0; k < V; ++k) {
        n.at[k] = up * (left * n.at[k] + column.share * right.at[k]) +
                  row.share * (left * below.at[k] + column.share * last.at[k]);
      }
    }
    Store<V>(to, i, n);
  }
};

struct UpSampleBackward {
  Places small, large;
  int64_t factor_y, factor_x;
  bool bilinear, add;
  In dy;
  Out dx;
  template <int V>
  CAIRN_DEVICE void Do(int64_t i) const {
    const Place p = small.Of(i);
    const int64_t height = large.height.divisor(), width = large.width.divisor();
    // Bilinear: a position also takes from the centers of its two neighbours.
    const int64_t reach = bilinear ? 1 : 0;
    const int64_t y0 = (p.y - reach) * factor_y, y1 = (p.y + 1 + reach) * factor_y;
    const int64_t x0 = (p.x - reach) * factor_x, x1 = (p.x + 1 + reach) * factor_x;
    Numbers<V> sum = {};
    for (int64_t y = y0 < 0 ? 0 : y0; y < y1 && y < height; ++y) {
      const float of_row = ShareOf(p.y, y, small.height.divisor(), factor_y, bilinear);
      for (int64_t x = x0 < 0 ? 0 : x0; x < x1 && x < width; ++x) {
        const float share = of_row * ShareOf(p.x, x, small.width.divisor(), factor_x, bilinear);
        const Numbers<V> d = Load<V>(dy, large.Index(p.example, y, x, p.channel));
        CAIRN_UNROLL
        for (int k = 0; k < V; ++k) sum.at[k] += share * d.at[k];
      }
    }
    StoreOrAdd<V>(dx, i, sum, add);
  }
};

}  // namespace

Error Affine(Stream stream, int64_t n, float scale, float offset, const void* from, DType from_type, void* to,
             DType to_type, bool add) {
  return LaunchForEach(stream, n, true,
                       AffineMap{scale, offset, scale == 1 && offset == 0, add, {from, from_type}, {to, to_type}});
}

Error AffineOfBytes(Stream stream, int64_t n, float scale, float offset, const uint8_t* from, void* to, DType to_type) {
  return LaunchForEach(stream, n, true,
                       AffineOfBytesMap{scale, offset, scale == 1 && offset == 0, from, {to, to_type}});
}

Error Transpose(Stream stream, int64_t rows, int64_t columns, const void* from, DType from_type, void* to,
                DType to_type) {
  const int64_t across = CeilDivide(columns, Transposition::kTile),
                blocks = CeilDivide(rows, Transposition::kTile) * across;
  return Launch(stream, blocks,
                Transposition{rows, columns, Divider(across, blocks), {from, from_type}, {to, to_type}});
}

Error CopyColumns(Stream stream, int64_t rows, int64_t width, const void* from, int64_t from_width, int64_t from_begin,
                  void* to, int64_t to_width, int64_t to_begin, DType type, bool add) {
  return LaunchForEach(
      stream, rows * width, Wide(width, from_width, from_begin, to_width, to_begin),
      ColumnCopy{
          Divider(width, rows * width), from_width, from_begin, to_width, to_begin, add, {from, type}, {to, type}});
}

Error Permute(Stream stream, const int64_t dims[4], const int64_t strides[4], const void* from, void* to, DType type,
              bool add) {
  const int64_t n = dims[0] * dims[1] * dims[2] * dims[3];
  const bool wide = strides[3] == 1 && Wide(dims[3], strides[0], strides[1], strides[2]);
  return LaunchForEach(stream, n, wide,
                       Permutation{{Divider(), Divider(dims[1], n), Divider(dims[2], n), Divider(dims[3], n)},
                                   {strides[0], strides[1], strides[2], strides[3]},
                                   add,
                                   {from, type},
                                   {to, type}});
}

Error Pad(Stream stream, const Window& w, const void* from, void* to, DType type) {
  const int64_t n = Count(w, w.out);
  return LaunchForEach(stream, n, Wide(w.in[2]),
                       Padding{Places(w.in, n), Places(w.out, n), w.pad[0], w.pad[1], {from, type}, {to, type}});
}

Error Crop(Stream stream, const Window& w, const void* from, void* to, DType type, bool add) {
  const int64_t n = Count(w, w.in), large = Count(w, w.out);
  return LaunchForEach(
      stream, n, Wide(w.in[2]),
      Cropping{Places(w.in, n), Places(w.out, large), w.pad[0], w.pad[1], add, {from, type}, {to, type}});
}

Error UpSampling(Stream stream, const Window& w, bool bilinear, const void* x, void* y, DType type) {
  const int64_t n = Count(w, w.out);
  return LaunchForEach(
      stream, n, Wide(w.in[2]),
      UpSample{
          Places(w.in, n), Places(w.out, n), w.out[0] / w.in[0], w.out[1] / w.in[1], bilinear, {x, type}, {y, type}});
}

Error UpSamplingBackward(Stream stream, const Window& w, bool bilinear, const void* dy, void* dx, DType type,
                         bool add) {
  const int64_t n = Count(w, w.in), large = Count(w, w.out);
  return LaunchForEach(stream, n, Wide(w.in[2]),
                       UpSampleBackward{Places(w.in, n),
                                        Places(w.out, large),
                                        w.out[0] / w.in[0],
                                        w.out[1] / w.in[1],
                                        bilinear,
                                        add,
                                        {dy, type},
                                        {dx, type}});
}

}  // namespace cairn::cudnn::kernels
