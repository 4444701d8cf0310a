#include "common/data/warp.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <vector>

namespace cairn {
namespace {

constexpr double kTwoPi = 6.283185307179586476925286766559;

// Which pixel of a row of `size` is used at `i`, which is outside the row; -1: none.
int64_t Beyond(v1::FillMode mode, int64_t i, int64_t size) {
  switch (mode) {
    case v1::WRAP: i %= size; return i < 0 ? i + size : i;
    case v1::NEAREST_PIXEL: return std::clamp<int64_t>(i, 0, size - 1);
    case v1::FILL_CONSTANT: return i >= 0 && i < size ? i : -1;
    default: break;
  }
  const int64_t period = 2 * size;
  i %= period;
  if (i < 0) i += period;
  return i < size ? i : period - 1 - i;
}

// Clamps coordinates so that their floor fits an integer; so far outside only the fill mode counts.
constexpr float kFarOut = 1 << 23;

struct Tap {
  int64_t low = 0, high = 0;  // pixels; -1: the fill value
  float share = 0;            // weight of `high`
};

Tap MakeTap(v1::FillMode mode, float at, int64_t size) {
  at = std::clamp(at, -kFarOut, kFarOut);
  const float floor = std::floor(at);
  const int64_t low = static_cast<int64_t>(floor);
  return {Beyond(mode, low, size), Beyond(mode, low + 1, size), at - floor};
}

// The four pixels around a position, and its distance from the first of them.
struct Corners {
  const float* top;     // row
  const float* bottom;  // the next one
  int64_t low, high;    // offsets in a row of the left and the right pixel, in numbers
  float x_share, y_share;
};

// Bilinear: first within each row, then between rows.
template <int kChannels>
inline void Blend(const Corners& at, int64_t channels, float* out) {
  const int64_t count = kChannels > 0 ? kChannels : channels;
  for (int64_t c = 0; c < count; ++c) {
    const float above = at.top[at.low + c] + (at.top[at.high + c] - at.top[at.low + c]) * at.x_share;
    const float below = at.bottom[at.low + c] + (at.bottom[at.high + c] - at.bottom[at.low + c]) * at.x_share;
    out[c] = above + (below - above) * at.y_share;
  }
}

// For taps that are outside the picture.
void BlendFilled(const PictureShape3& shape, const Tap& x, const Tap& y, float fill, const float* in, float* out) {
  const auto pixel = [&](int64_t row, int64_t column, int64_t c) {
    return row < 0 || column < 0 ? fill : in[row * shape.row() + column * shape.channels + c];
  };
  for (int64_t c = 0; c < shape.channels; ++c) {
    const float a = pixel(y.low, x.low, c), b = pixel(y.low, x.high, c);
    const float d = pixel(y.high, x.low, c), e = pixel(y.high, x.high, c);
    const float above = a + (b - a) * x.share, below = d + (e - d) * x.share;
    out[c] = above + (below - above) * y.share;
  }
}

template <int kChannels>
void BlendTaps(const PictureShape3& shape, const Tap& x, const Tap& y, float fill, const float* in, float* out) {
  if (x.low < 0 || x.high < 0 || y.low < 0 || y.high < 0) return BlendFilled(shape, x, y, fill, in, out);
  Blend<kChannels>({in + y.low * shape.row(), in + y.high * shape.row(), x.low * shape.channels,
                    x.high * shape.channels, x.share, y.share},
                   shape.channels, out);
}

// Treats rows and columns separately: first interpolates between two rows, in one loop over whole rows, then within the
// resulting row. Outside the picture are a row, and after each row a pixel, of the fill value.
template <int kChannels>
void WarpSeparate(const PictureShape3& shape, const std::vector<Tap>& rows, const std::vector<Tap>& columns, float fill,
                  const float* in, float* out) {
  const int64_t channels = kChannels > 0 ? kChannels : shape.channels, numbers = shape.row();
  std::vector<float> outside, between(static_cast<size_t>(numbers + channels), fill);
  const auto row_of = [&](int64_t row) -> const float* {
    if (row >= 0) return in + row * numbers;
    outside.resize(static_cast<size_t>(numbers), fill);
    return outside.data();
  };
  const auto place_of = [&](int64_t column) { return (column < 0 ? shape.width : column) * channels; };
  const bool whole = std::all_of(columns.begin(), columns.end(), [](const Tap& tap) { return tap.share == 0; });
  for (const Tap& row : rows) {
    const float* const top = row_of(row.low);
    const float* const bottom = row_of(row.high);
    float* const mixed = between.data();
    for (int64_t i = 0; i < numbers; ++i) mixed[i] = top[i] + (bottom[i] - top[i]) * row.share;
    for (const Tap& column : columns) {
      const float* const low = mixed + place_of(column.low);
      const float* const high = whole ? low : mixed + place_of(column.high);
      for (int64_t c = 0; c < channels; ++c) out[c] = low[c] + (high[c] - low[c]) * column.share;
      out += channels;
    }
  }
}

std::vector<Tap> AxisTaps(v1::FillMode mode, float scale, float offset, int64_t size) {
  std::vector<Tap> taps(static_cast<size_t>(size));
  for (int64_t i = 0; i < size; ++i) taps[i] = MakeTap(mode, scale * static_cast<float>(i) + offset, size);
  return taps;
}

template <int kChannels>
void WarpAny(const PictureShape3& shape, const Affine2& affine, v1::FillMode mode, float fill, const float* in,
             float* out) {
  const float x_end = static_cast<float>(shape.width - 1), y_end = static_cast<float>(shape.height - 1);
  for (int64_t y = 0; y < shape.height; ++y) {
    const float x0 = affine.xy * static_cast<float>(y) + affine.x0, y0 = affine.yy * static_cast<float>(y) + affine.y0;
    for (int64_t x = 0; x < shape.width; ++x, out += shape.channels) {
      const float x_in = affine.xx * static_cast<float>(x) + x0, y_in = affine.yx * static_cast<float>(x) + y0;
      if (x_in >= 0 && x_in < x_end && y_in >= 0 && y_in < y_end) {  // the usual case
        const int32_t column = static_cast<int32_t>(x_in), row = static_cast<int32_t>(y_in);
        const float* top = in + row * shape.row();
        const int64_t low = column * shape.channels;
        Blend<kChannels>({top, top + shape.row(), low, low + shape.channels, x_in - static_cast<float>(column),
                          y_in - static_cast<float>(row)},
                         shape.channels, out);
      } else {
        BlendTaps<kChannels>(shape, MakeTap(mode, x_in, shape.width), MakeTap(mode, y_in, shape.height), fill, in, out);
      }
    }
  }
}

template <int kChannels>
void WarpChannels(const PictureShape3& shape, const Affine2& affine, v1::FillMode mode, float fill, const float* in,
                  float* out) {
  if (affine.xy == 0 && affine.yx == 0) {
    WarpSeparate<kChannels>(shape, AxisTaps(mode, affine.yy, affine.y0, shape.height),
                            AxisTaps(mode, affine.xx, affine.x0, shape.width), fill, in, out);
  } else {
    WarpAny<kChannels>(shape, affine, mode, fill, in, out);
  }
}

}  // namespace

// Removes whole quarter turns, then uses the Taylor series about 0 within an eighth of a turn; the next term is below
// 2^-55.
void SinCos(double turns, double* sine, double* cosine) {
  const double quarters = std::floor(turns * 4 + 0.5);
  const double x = (turns - quarters / 4) * kTwoPi, xx = x * x;
  double s = 0, c = 0;
  for (int n = 17; n >= 3; n -= 2) s = (1 + s) * (-xx / (n * (n - 1)));
  for (int n = 18; n >= 2; n -= 2) c = (1 + c) * (-xx / (n * (n - 1)));
  s = x * (1 + s);
  c = 1 + c;
  switch (((static_cast<int64_t>(quarters) % 4) + 4) % 4) {
    case 0: *sine = s, *cosine = c; break;
    case 1: *sine = c, *cosine = -s; break;
    case 2: *sine = -s, *cosine = -c; break;
    default: *sine = -c, *cosine = s; break;
  }
}

// x_in - mx = cos (x - mx) - sin (y - my), y_in - my = sin (x - mx) + cos (y - my), with (mx, my) the picture's centre.
Affine2 Rotation(const PictureShape3& shape, double turns) {
  double sine, cosine;
  SinCos(turns, &sine, &cosine);
  const double mx = static_cast<double>(shape.width - 1) / 2, my = static_cast<double>(shape.height - 1) / 2;
  Affine2 a;
  a.xx = static_cast<float>(cosine);
  a.xy = static_cast<float>(-sine);
  a.x0 = static_cast<float>(mx - cosine * mx + sine * my);
  a.yx = static_cast<float>(sine);
  a.yy = static_cast<float>(cosine);
  a.y0 = static_cast<float>(my - sine * mx - cosine * my);
  return a;
}

Affine2 Zoom(const PictureShape3& shape, float height, float width) {
  Affine2 a;
  a.xx = width;
  a.x0 = static_cast<float>(shape.width - 1) / 2 * (1 - width);
  a.yy = height;
  a.y0 = static_cast<float>(shape.height - 1) / 2 * (1 - height);
  return a;
}

Affine2 Translation(float down, float right) {
  Affine2 a;
  a.x0 = -right;
  a.y0 = -down;
  return a;
}

void Warp(const PictureShape3& shape, const Affine2& affine, v1::FillMode fill_mode, float fill_value, const float* in,
          float* out) {
  switch (shape.channels) {
    case 1: return WarpChannels<1>(shape, affine, fill_mode, fill_value, in, out);
    case 3: return WarpChannels<3>(shape, affine, fill_mode, fill_value, in, out);
    default: return WarpChannels<0>(shape, affine, fill_mode, fill_value, in, out);
  }
}

void Displace(const PictureShape3& shape, const Displacement& by, const Sampling& sampling, const float* in,
              float* out) {
  const auto tap = [&](float at, int64_t size) {
    return MakeTap(sampling.fill_mode, sampling.nearest ? std::floor(at + 0.5f) : at, size);
  };
  for (int64_t y = 0, i = 0; y < shape.height; ++y) {
    for (int64_t x = 0; x < shape.width; ++x, ++i, out += shape.channels) {
      const auto at = static_cast<size_t>(i);
      BlendTaps<0>(shape, tap(static_cast<float>(x) + by.across[at], shape.width),
                   tap(static_cast<float>(y) + by.down[at], shape.height), sampling.fill_value, in, out);
    }
  }
}

void CropAndResize(const PictureShape3& shape, const PicturePart& part, const PictureShape3& to, const float* in,
                   float* out) {
  const auto taps = [](int64_t begin, int64_t length, int64_t length_out, int64_t size) {
    std::vector<Tap> made(static_cast<size_t>(length_out));
    const float scale = static_cast<float>(length) / static_cast<float>(length_out);
    for (int64_t i = 0; i < length_out; ++i) {
      const float at = (static_cast<float>(i) + 0.5f) * scale - 0.5f, floor = std::floor(at);
      const auto inside = [&](int64_t p) {  // inside the part, and inside the picture
        return Beyond(v1::FILL_CONSTANT, begin + std::clamp<int64_t>(p, 0, length - 1), size);
      };
      const int64_t low = static_cast<int64_t>(floor);
      made[i] = {inside(low), inside(low + 1), at - floor};
    }
    return made;
  };
  const std::vector<Tap> rows = taps(part.top, part.height, to.height, shape.height);
  const std::vector<Tap> columns = taps(part.left, part.width, to.width, shape.width);
  switch (shape.channels) {
    case 1: return WarpSeparate<1>(shape, rows, columns, 0, in, out);
    case 3: return WarpSeparate<3>(shape, rows, columns, 0, in, out);
    default: return WarpSeparate<0>(shape, rows, columns, 0, in, out);
  }
}

}  // namespace cairn
